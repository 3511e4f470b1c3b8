from dialrl.environment.demo import scenarios
from dialrl.environment.demo.acts import Act, features
from dialrl.environment.demo.policy_data import WEAK, training_dialogue


def test_every_slot_word_is_right_and_no_reply_repeats() -> None:
    for seed in range(60):
        transcript, _ = training_dialogue(seed)
        for place in range(1, len(transcript), 2):
            assert features(transcript[place].content, transcript[:place]).act not in (Act.GARBLED, Act.REPEAT)


def test_held_out_pairs_never_occur() -> None:
    held_out = {(each.feeling, each.topic) for each in scenarios("test")}
    for seed in range(100):
        words = set(training_dialogue(seed)[0][0].content.lower().replace(".", "").split())
        assert not any(feeling in words and topic in words for feeling, topic in held_out)


def test_every_act_is_taught() -> None:
    seen = set()
    for seed in range(100):
        transcript, _ = training_dialogue(seed)
        seen |= {features(transcript[place].content, transcript[:place]).act for place in range(1, len(transcript), 2)}
    assert seen == set(WEAK.told)


def test_a_dialogue_is_a_function_of_its_seed() -> None:
    assert training_dialogue(7) == training_dialogue(7)
    assert training_dialogue(7) != training_dialogue(8)


def test_the_behaviour_is_weak() -> None:
    returns = [training_dialogue(seed, scenario=given)[1] for seed, given in enumerate(scenarios("test") * 3)]
    assert sum(returns) / len(returns) < 0.25 * 12.0
