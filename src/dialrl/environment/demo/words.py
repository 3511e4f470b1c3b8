"""The words of the demo world: the three lists of slot words, and the words by which a reply's intent is read.

Not here: whole sentences (see ``lines`` for the user's, ``replies`` for the policy's).
Every list is disjoint from the others and from the words of the user's fixed sentences, so that one look at a word
tells what it names.
"""

# fmt: off
FEELINGS = (
    "lonely", "anxious", "ashamed", "angry", "guilty", "scared", "hopeless", "jealous", "numb", "tired", "lost",
    "bitter", "tense", "sad", "helpless", "bored",
)
TOPICS = (
    "exam", "job", "wedding", "divorce", "diagnosis", "accident", "thesis", "loan", "rent", "interview",
    "project", "surgery", "fight", "layoff", "breakup", "visa", "trial", "audition", "retirement", "relocation",
)
DETAILS = (
    "father", "mother", "brother", "sister", "grandmother", "uncle", "teacher", "coach", "boss", "neighbor",
    "daughter", "son", "roommate", "mentor", "cousin", "partner", "letter", "promise", "secret", "mistake",
)
# fmt: on

ADVICE_WORDS = frozenset(["should", "try", "plan", "forget", "stop", "advice"])
AFFIRMING_WORDS = frozenset(["brave", "strong", "stronger", "proud", "capable", "courage"])

SLOT_WORDS = {"feeling": frozenset(FEELINGS), "topic": frozenset(TOPICS), "detail": frozenset(DETAILS)}
