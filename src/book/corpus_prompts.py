"""What the real model was asked to write: 768 stories and 768 explanations, in a fixed order. Plain data,
no randomness."""

HEROES = (
    "Ines the baker", "Omar the lamplighter", "a shy fox", "Mira the clockmaker", "an old tortoise",
    "Tom the postman", "a curious robot", "Lena the gardener", "a small grey mouse", "Captain Ruth",
    "Pavel the carpenter", "a young owl", "Anna the librarian", "a tired donkey", "Jonas the fisherman",
    "a brave little snail", "Sara the doctor", "a lonely giant", "Felix the painter", "a clever crow",
    "Nadia the pilot", "Rosa the weaver", "Greta the shepherd", "a lost puppy", "Hugo the cook",
    "a quiet whale", "Zoe the inventor", "a stubborn goat", "Ivan the miner", "a girl called Wren",
    "Marta the teacher", "a forgetful wizard",
)  # fmt: skip

EVENTS = (
    "finds an old key", "waits for the first snow", "loses a red boat", "hears music at night",
    "repairs a broken bridge", "learns to swim", "plants a strange seed", "gets a letter by mistake",
    "hides from a storm", "makes a new friend", "cannot sleep", "builds a kite", "must tell the truth",
    "follows a map", "shares the last loaf of bread", "is afraid of the dark",
    "bakes a cake for a stranger", "wins a race slowly", "meets a talking tree", "wants to fly",
    "looks for the missing bell", "says goodbye", "opens a small shop", "keeps a promise",
)  # fmt: skip

PLACES = (
    "in a harbour town", "on a high mountain", "in a noisy city", "at the edge of a forest",
    "on a small island", "in an empty school", "by a frozen lake", "in a village without clocks",
    "on a night train", "in the desert", "under a big bridge", "in a garden behind a wall",
    "at a busy market", "on a farm", "in a lighthouse", "near a waterfall",
)  # fmt: skip

TOPICS = (
    "why the sky is blue", "how a bicycle stays upright", "how bread rises", "why leaves change colour",
    "how a clock works", "why the sea is salty", "how bees make honey", "what a shadow is",
    "how a bridge carries weight", "why we sleep", "how rain forms", "what money is for",
    "how a candle burns", "why ice floats", "how birds find their way", "what a map shows",
    "how a lock and key work", "why the moon changes shape", "how plants drink", "what an echo is",
    "how a sail moves a boat", "why metal rusts", "how a seed grows", "what gravity does",
    "how glass is made", "why we have seasons", "how a library is organised", "what a fraction is",
    "how soap cleans", "why stars twinkle", "how a telephone works", "what a rule is",
    "how cheese is made", "why cats purr", "how a volcano erupts", "what electricity is",
    "how to tie a knot", "why days have 24 hours", "how a wheel helps us", "what a promise is",
    "how paper is made", "why wind blows", "how a magnet works", "what a habit is", "how fish breathe",
    "why we need salt", "how a river changes its valley", "what a sum is", "how a lens works",
    "why dogs wag their tails", "how a thermometer works", "what friendship means", "how tea is grown",
    "why bubbles are round", "how a piano makes sound", "what a story needs", "how ants work together",
    "why water boils", "how a compass works", "what a question is", "how wool becomes a coat",
    "why we dream", "how a plane flies", "what an average is", "how mountains form",
    "why onions make us cry", "how a letter travels", "what a prime number is",
    "how a spider makes a web", "why ships do not sink", "how the heart works", "what a democracy is",
    "how a camera works", "why fire is hot", "how a radio works", "what patience is",
    "how to learn a language", "why the sun shines", "how a computer counts", "what noise is",
    "how a well gives water", "why trees have bark", "how to keep a garden", "what a tide is",
    "how a train stays on its rails", "why we yawn", "how salt is made", "what memory is",
    "how a balloon rises", "why bread goes stale", "how to read a graph", "what a vote is",
    "how snow falls", "why we have bones", "how an oven works", "what courage is",
)  # fmt: skip

FRAMES = (
    "Explain {} in simple words.",
    "Explain {} to a ten-year-old child.",
    "Write two paragraphs about {}.",
    "A student asks {}. Answer with an example.",
    "Explain {}, step by step.",
    "Write a short dialogue in which a teacher explains {}.",
    "Explain {} with a comparison from the kitchen.",
    "Write a short text for a museum about {}.",
)


def prompts():
    """The prompts in order, a story and an explanation by turns; no two are equal."""
    asked = []
    for i in range(len(TOPICS) * len(FRAMES)):
        turn, h = divmod(
            i, len(HEROES)
        )  # every hero once before any comes again, each time with another event
        event, place = EVENTS[(h + turn) % len(EVENTS)], PLACES[(5 * h + 7 * turn) % len(PLACES)]
        asked.append(f"Write a short story about {HEROES[h]} who {event} {place}.")
        asked.append(FRAMES[(i + i // len(TOPICS)) % len(FRAMES)].format(TOPICS[i % len(TOPICS)]))
    return asked
