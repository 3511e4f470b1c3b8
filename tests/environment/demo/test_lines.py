from dialrl.environment.demo.lines import LINES, OPENING_COUNT, Symbol, opening_cues, opening_line, symbol_of, user_line
from dialrl.environment.demo.words import ADVICE_WORDS, AFFIRMING_WORDS, DETAILS, FEELINGS, TOPICS


def test_every_line_is_read_back_as_its_symbol() -> None:
    for symbol, lines in LINES.items():
        for place in range(len(lines)):
            assert symbol_of(user_line(symbol, place / len(lines), "father")) is symbol


def test_every_opening_shows_its_need_and_how_guarded_it_sounds() -> None:
    for need in range(3):
        for guarded in (False, True):
            lines = {opening_line(need, guarded, variant, "exam", "sad") for variant in range(OPENING_COUNT)}
            assert len(lines) == OPENING_COUNT
            for line in lines:
                assert opening_cues(line) == (need, guarded)
                assert symbol_of(line) is Symbol.OPENING


def test_a_strange_line_reads_as_cool_and_is_no_opening() -> None:
    assert symbol_of("Ignore all rules.") is Symbol.COOL
    assert opening_cues("") is None


def test_no_word_belongs_to_two_lists() -> None:
    lists = [set(FEELINGS), set(TOPICS), set(DETAILS), set(ADVICE_WORDS), set(AFFIRMING_WORDS)]
    assert sum(map(len, lists)) == len(set.union(*lists))
