"""Who was born where, who governs which town: a fictional world as a pure function of its seed. Not here: any text."""

import random
from dataclasses import dataclass
from itertools import product

# fmt: off
GIVEN = (
    "Mira", "Tamo", "Ilsa", "Bren", "Odra", "Kelt", "Suri", "Vann", "Lida", "Joren", "Petra", "Halm", "Nela", "Rusk",
    "Dara", "Filo", "Wenna", "Orin", "Tessa", "Gorm", "Yara", "Emil", "Sanna", "Bodo",
)
FAMILY = (
    "Volen", "Reed", "Halden", "Marsk", "Tulip", "Oster", "Quill", "Brandt", "Ferro", "Linde", "Castor", "Wick",
    "Sorrel", "Pryce", "Dunmore", "Ash", "Vesper", "Holm", "Kant", "Merrow", "Stroud", "Falk", "Ivory", "Teller",
)
TOWN_FIRST = (
    "Kelm", "Arden", "Bryn", "Corla", "Dorn", "Esk", "Fenn", "Galt", "Hurst", "Inver", "Jarl", "Lorn", "Moss", "Nord",
    "Oak", "Pell",
)
TOWN_SECOND = ("Harbor", "Field", "Bridge", "Gate", "Hollow", "Spring")
BYNAME = (
    "Lantern", "Copper", "Willow", "Thunder", "Velvet", "Marble", "Amber", "Cedar", "Silver", "Raven", "Crystal",
    "Saffron", "Ember", "Indigo", "Walnut", "Pearl", "Falcon", "Garnet", "Juniper", "Ivy", "Cobalt", "Meadow", "Onyx",
    "Scarlet",
)
CRAFTS = (
    "glazier", "weaver", "cooper", "potter", "miller", "tanner", "baker", "mason", "printer", "saddler", "carver",
    "dyer", "brewer", "joiner", "smith", "tailor",
)
# fmt: on
PEOPLE, TOWNS = 160, 24


@dataclass(frozen=True)
class Person:
    """``town``: number of the town of birth."""

    name: str
    town: int
    craft: str


@dataclass(frozen=True)
class Town:
    """``byname`` shares no word with the name; ``governor``: number of a person."""

    name: str
    byname: str
    governor: int


@dataclass(frozen=True)
class Facts:
    people: tuple[Person, ...]
    towns: tuple[Town, ...]


def make_facts(seed: int = 0) -> Facts:
    """160 people and 24 towns. No two people share both names; those that share one are each other's distractors."""
    draws = random.Random(f"search world {seed}")
    names = draws.sample([f"{given} {family}" for given, family in product(GIVEN, FAMILY)], PEOPLE)
    town_names = draws.sample([f"{first} {second}" for first, second in product(TOWN_FIRST, TOWN_SECOND)], TOWNS)
    bynames = draws.sample(BYNAME, TOWNS)
    people = tuple(Person(name, draws.randrange(TOWNS), draws.choice(CRAFTS)) for name in names)
    governors = draws.sample(range(PEOPLE), TOWNS)
    towns = tuple(
        Town(name, f"City of {byname}", governor)
        for name, byname, governor in zip(town_names, bynames, governors, strict=True)
    )
    return Facts(people, towns)
