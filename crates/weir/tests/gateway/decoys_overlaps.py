"""Cases of `decoys.py`: data that come twice and differ, with what Linux takes of them."""

from decoys import DECOY, case



@case("data there first are kept")
def _(flow, word):
    flow.send(0, word[:5])
    flow.send(0, DECOY[:5])
    flow.send(2, b"--" + word[4:])
    return word[:5] + word[5:]


@case("what fills the hole is taken")
def _(flow, word):
    flow.send(6, b"---" + word[9:])
    flow.send(0, word[:9])


@case("what begins before is taken")
def _(flow, word):
    flow.send(7, b"--" + word[9:])
    flow.send(5, word[5:9])
    flow.send(0, word[:5])


@case("what begins behind is not taken")
def _(flow, word):
    flow.send(5, word[5:8])
    flow.send(6, b"--" + word[8:])
    flow.send(0, word[:5])


@case("what is longer is taken")
def _(flow, word):
    flow.send(5, DECOY[:3])
    flow.send(5, word[5:])
    flow.send(0, word[:5])


@case("what is as long is not taken")
def _(flow, word):
    flow.send(5, word[5:])
    flow.send(5, DECOY[5:])
    flow.send(0, word[:5])


@case("what covers more is taken")
def _(flow, word):
    flow.send(6, DECOY[:3])
    flow.send(5, word[5:])
    flow.send(0, word[:5])


def islands(flow):
    for at in range(100, 1700, 20):
        flow.send(at, b"." * 10)


@case("what is longer is taken after many others")
def _(flow, word):
    flow.send(5, DECOY[:3])
    islands(flow)
    flow.send(5, word[5:])
    flow.send(0, word[:5])


@case("what fills the hole is taken after many others")
def _(flow, word):
    flow.send(6, b"---" + word[9:])
    islands(flow)
    flow.send(0, word[:9])
