"""The demo world: a scripted user, a rule judge and exact reference values, with nothing to download.

It is a finite, partly hidden Markov decision process, so the best possible policy is known exactly and a learned one
can be placed between silence (share 0) and that optimum (share 1). In a page:

**Who.** A user feels one of 16 feelings about one of 20 topics and keeps back one of 20 details. Hidden from the
policy: the *need* (which axis lacks most: P_0 is -12 on it and -7 on the two others), whether the user is *guarded*
(trust needed before a question is answered: 2, else 1), and the detail. The opening's wording shows the need, names
feeling and topic, and sounds guarded or open; it is right about that three times in four.

**State.** need, guarded; what was gained on C, A, P; how often each act has helped; trust 0..3; the act before; whether
the detail is told; whether the moment is *raw*. At most 8 policy turns.

**A reply** is read through ten yes/no features of its text (``acts.ReplyFeatures``), from which one act follows:

========== ==================================== ======================================================== ============
act        read from                            levels (steady moment)                                   helps up to
========== ==================================== ======================================================== ============
SILENT     no words                             all 0
VALIDATE   names the feeling                    A.Prog 1                                                 2 times
PARAPHRASE names the topic                      C.Prog 1; raw: 0                                         2 times
AFFIRM     encourages                           P.Prog 1; raw or used up: P.Neg -1                       2 times
ADVISE     gives advice                         too early: C.Neg -1, P.Neg -1; told: P.Prog 1;           no limit
                                                told and raw: P.Neg -1
ASK        asks, naming what the user said      answered or told: 0; refused: A.Neg -1                   once
RESONATE   names the told detail                C.Prog 2, A.Prog 2                                       3 times
EMPOWER    the same, with encouragement/advice  P.Prog 2; raw or used up: P.Neg -1                       3 times
GENERIC    none of these                        C.Neg -1
REPEAT     an earlier reply word for word       A.Neg -1
GARBLED    too long, stutters, or names what    C.Neg -2, A.Neg -1
           the user never said
========== ==================================== ======================================================== ============

The same act (VALIDATE to EMPOWER) twice in a row: A.Neg -1 and nothing else. Levels become scores and positions by the
state model's table; the reward of a turn is the zone distance it takes away (channel ``incremental-distance``).

**Transitions.** Before the detail is told, an act with a positive level adds 1 to trust, a refused question takes 1.
A question is answered if the moment is steady, trust is enough, and the act before was no question; the user then
tells the detail. Otherwise the next moment is raw with probability 0.15; if not, the line shows: refused, hurt (some
level was negative), eased (detail told), or else *warm* or *cool*: whether trust is enough, wrong one time in five. The
user says goodbye when every axis is in the zone.

**So** kind words earn a little at once and soon nothing; asking earns nothing at once, and opens what is worth most.

Files: ``words``, ``lines`` (user), ``acts`` (reading a reply), ``rules`` (the process), ``scenario``, ``world`` (the
user), ``tracker`` (text back to states), ``planner`` (exact values), ``agents`` (planners that speak), ``replies``
(sentences for a policy), ``policy_data`` and ``base_policy`` (the shipped tiny model). Not here: the judge
(``dialrl.judge.demo``) and the async environment around the user (``dialrl.environment.demo_environment``).
"""

from dialrl.environment.demo.acts import Act, ReplyFeatures, features
from dialrl.environment.demo.planner import DemoReference, solve
from dialrl.environment.demo.scenario import DemoScenario, scenario, scenarios
from dialrl.environment.demo.world import DemoUser, UserStep

__all__ = [
    "Act",
    "DemoReference",
    "DemoScenario",
    "DemoUser",
    "ReplyFeatures",
    "UserStep",
    "features",
    "scenario",
    "scenarios",
    "solve",
]
