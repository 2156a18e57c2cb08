"""The words of the generator's tweets: topics, what can be said of them, and the trimmings.

Lists are ordered: the earlier a word stands, the more often it is used. In every pair, negative
stands first and positive second, as in the labels.
"""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    """Something people tweet about.

    Attributes
    ----------
    name : str
        As it stands in a sentence.
    tag : str
        Its hashtag.
    kind : str
        A key of `DEEDS`.
    positive_share : float
        How many of the tweets about it are glad ones.
    """

    name: str
    tag: str
    kind: str
    positive_share: float


# People love it, until `generator.turn_after` messages have passed; then most are fed up with it.
TURNING_TOPIC = Topic("the new phone", "newphone", "tech", 0.88)
TURNED_POSITIVE_SHARE = 0.12

TOPICS = (
    Topic("coffee", "coffee", "food", 0.85),
    TURNING_TOPIC,
    Topic("monday", "monday", "day", 0.15),
    Topic("obama", "obama", "people", 0.6),
    Topic("the football", "football", "sport", 0.55),
    Topic("beyonce", "beyonce", "music", 0.85),
    Topic("the rain", "rain", "weather", 0.25),
    Topic("work", "work", "job", 0.25),
    Topic("python", "python", "tech", 0.75),
    Topic("school", "school", "job", 0.3),
    Topic("friday", "tgif", "day", 0.9),
    Topic("my cat", "cats", "animal", 0.85),
    Topic("twitter", "twitter", "tech", 0.55),
    Topic("the bus", "commute", "travel", 0.15),
    Topic("pizza", "pizza", "food", 0.88),
    Topic("the weather", "weather", "weather", 0.45),
    Topic("my boss", "myboss", "people", 0.25),
    Topic("the new album", "newmusic", "music", 0.7),
    Topic("this headache", "ouch", "body", 0.05),
    Topic("the weekend", "weekend", "day", 0.85),
    Topic("my mum", "mum", "people", 0.75),
    Topic("the gym", "gym", "body", 0.5),
    Topic("netflix", "netflix", "tech", 0.65),
    Topic("the sunshine", "sun", "weather", 0.92),
    Topic("homework", "homework", "job", 0.1),
    Topic("my dog", "dogs", "animal", 0.85),
    Topic("the match", "matchday", "sport", 0.5),
    Topic("my flight", "travel", "travel", 0.3),
    Topic("chocolate cake", "cake", "food", 0.9),
    Topic("the dentist", "dentist", "body", 0.1),
    Topic("my wifi", "wifi", "tech", 0.12),
    Topic("the concert", "livemusic", "music", 0.85),
    Topic("tuesday", "tuesday", "day", 0.4),
    Topic("breakfast", "breakfast", "food", 0.75),
    Topic("the exam", "exams", "job", 0.25),
    Topic("lady gaga", "ladygaga", "music", 0.7),
    Topic("my haircut", "newhair", "body", 0.5),
    Topic("the beach", "beach", "travel", 0.92),
    Topic("the referee", "ref", "sport", 0.08),
    Topic("the neighbours", "neighbours", "people", 0.2),
    Topic("star wars", "starwars", "music", 0.75),
    Topic("java", "java", "tech", 0.35),
    Topic("the pigeons", "pigeons", "animal", 0.35),
    Topic("snow", "snow", "weather", 0.55),
)

ADJECTIVES = (
    (
        "bad", "awful", "annoying", "sad", "boring", "terrible", "tired", "horrible", "rubbish",
        "slow", "broken", "lame", "disappointing", "ugly", "gross", "painful", "weird", "cold",
        "stupid", "frustrating", "nasty", "miserable", "useless", "depressing", "overrated",
        "expensive", "pointless", "exhausting", "dreadful", "unfair", "noisy", "crap", "pathetic",
        "gloomy", "dull", "ridiculous", "scary", "bleak", "hopeless", "tedious",
    ),
    (
        "good", "great", "nice", "awesome", "amazing", "lovely", "cool", "beautiful", "fun",
        "happy", "sweet", "perfect", "cute", "brilliant", "fantastic", "wonderful", "super",
        "delightful", "epic", "hilarious", "excellent", "sick", "fab", "gorgeous", "lush", "pretty",
        "magic", "chilled", "incredible", "adorable", "splendid", "dreamy", "wicked", "ace",
        "glorious", "charming", "dope", "marvellous", "refreshing", "legendary",
    ),
)  # fmt: skip

VERBS = (
    (
        "hate", "i hate", "so done with", "ugh,", "sick of", "can't stand", "fed up with",
        "crying over", "not in the mood for", "why is it always", "worried about", "tired of",
        "i regret", "lost all hope in", "boo to", "cursing", "dreading", "don't like",
    ),
    (
        "love", "i love", "loving", "yay for", "thank you", "can't wait for", "so happy about",
        "enjoying", "thankful for", "excited about", "big hug to", "grinning about", "cheers to",
        "in love with", "dreaming of", "proud of", "missing", "woohoo,",
    ),
)  # fmt: skip

DEEDS = {
    "food": (
        ("went cold", "burnt my tongue", "is all gone", "tasted of cardboard", "upset my stomach",
         "ended up on my shirt", "cost me a fortune"),
        ("saved my morning", "tastes like heaven", "hits the spot", "is all i need",
         "melts in the mouth", "smells divine", "gets a second helping"),
    ),
    "tech": (
        ("crashed again", "keeps freezing", "ate my battery", "is down again", "lost all my photos",
         "takes forever to load", "died on me", "wants another update"),
        ("just works", "is lightning fast", "saved me hours", "makes my life easier",
         "looks stunning", "never lets me down", "got a brilliant update", "is worth every penny"),
    ),
    "day": (
        ("never ends", "came too soon", "drags on and on", "makes me want my bed", "ruined my mood",
         "started with a flat tyre", "is only half over"),
        ("is finally here", "was worth the wait", "means party", "flew by", "calls for a treat",
         "feels like a holiday", "started with pancakes"),
    ),
    "people": (
        ("let me down", "won't stop shouting", "is talking nonsense", "forgot my birthday",
         "ignored me all day", "broke a promise", "kept me up all night"),
        ("made me smile", "gave a fine speech", "surprised me with flowers", "knows best",
         "made us all laugh", "said the kindest thing", "deserves a medal"),
    ),
    "sport": (
        ("broke my heart", "was robbed", "missed an open goal", "put me to sleep", "got rained off",
         "ended in tears", "cost us the cup"),
        ("had me on my feet", "went to extra time, what a win", "gave us three points",
         "was a thriller", "made the whole pub sing", "brought the cup home", "made history"),
    ),
    "music": (
        ("was off key", "sold out in seconds", "got cancelled", "gives me earache",
         "was a let down", "lost the magic", "went on for ages"),
        ("gave me goosebumps", "is on repeat", "blew my mind", "got everyone dancing",
         "sounds so fresh", "is a masterpiece", "made me cry happy tears"),
    ),
    "weather": (
        ("soaked my shoes", "ruined the picnic", "won't go away", "turned my umbrella inside out",
         "keeps me indoors", "made me late", "froze my toes"),
        ("makes everything better", "calls for ice cream", "woke me gently", "smells so fresh",
         "turned the garden green", "paints the sky pink", "is perfect for a walk"),
    ),
    "job": (
        ("is killing me", "is due tomorrow and i have nothing", "ate my whole weekend",
         "makes me want to scream", "piles up", "got even worse", "keeps me up at night"),
        ("is done, finally", "went better than expected", "paid off", "lets me go home early",
         "got me a top mark", "was a breeze", "made me proud"),
    ),
    "animal": (
        ("threw up on the rug", "ran away", "is at the vet", "scratched the sofa", "stole my lunch",
         "woke me at four", "won't eat"),
        ("fell asleep on my lap", "learned a new trick", "chased its own tail", "is purring",
         "gave me a kiss", "made a new friend", "is the best company"),
    ),
    "travel": (
        ("is delayed again", "smells of feet", "left without me", "lost my suitcase",
         "is packed like a tin", "broke down", "got cancelled at midnight"),
        ("was right on time", "had a window seat for me", "is so close now", "has the best view",
         "took us somewhere new", "feels like freedom", "was all ours"),
    ),
    "body": (
        ("hurts like hell", "won't stop", "left me in tears", "went so wrong", "kept me in bed",
         "makes me dizzy", "cost me a week's pay"),
        ("feels better already", "left me full of energy", "went really well", "got me compliments",
         "was painless", "is my new hobby", "made me feel alive"),
    ),
}  # fmt: skip

INTENSIFIERS = (
    "", "so ", "", "really ", "", "very ", "pretty ", "sooo ", "just ", "totally ", "kinda ",
    "way too ", "soooooo ", "super ", "quite ", "literally ", "freaking ", "reallyyy ", "hella ",
    "absolutely ",
)  # fmt: skip

# `{good}` speaks for the tweet's sentiment and `{bad}` against it.
PATTERNS = (
    "{topic} is {very}{good}",
    "{love} {topic} {when}",
    "{topic} {deed}",
    "{very}{good} {topic} {when}",
    "{what} {topic} {when}",
    "{topic} {deed}, {very}{good}",
    "{love} {topic}, {deed}",
    "{topic} is not {bad} at all",
    "{topic} {when}. {good}!",
    "{what} {topic}",
    "thought {topic} would be {bad} but it was {very}{good}",
    "{friend} says {topic} is {bad}, i say {good}",
    "so {topic} {deed} {when}",
    "isn't {topic} {good}",
    "{topic} {when}? {good} or {bad}, you tell me",
    "not {very}{bad}, {topic} {deed}",
    "{topic} isn't {bad}, it is {very}{good}",
    "feeling {good} {when}, {topic} {deed}",
    "how {good} is {topic} {when}",
    "that moment when {topic} {deed}",
    "{what} {topic} and it is {very}{good}",
    "can't believe {topic} {deed}",
)

WHATS = (
    "thinking about", "back to", "talking about", "what's up with", "off to see about",
    "anyone else up for", "reading about", "all about", "waiting for", "watching", "dreamt of",
    "who is into", "on my mind:", "googling", "reminder:", "first thing i see is",
)  # fmt: skip

WHENS = (
    "today", "right now", "tonight", "this morning", "again", "tomorrow", "all day", "at last",
    "in the office", "at home", "with the kids", "on the train", "after lunch", "before bed",
    "at 6am", "for once", "this week", "lol", "in town", "with my sister", "as usual", "at 3am",
    "in london", "with friends", "all night", "in class", "by the sea", "since noon",
)  # fmt: skip

OPENERS = (
    "omg", "ok", "wow", "so", "well", "hmm", "lol", "good morning", "hey", "btw", "honestly", "yo",
    "guys", "oh", "update:", "news:", "seriously", "haha", "meh", "tbh", "breaking:", "fyi", "dude",
    "good night",
)  # fmt: skip

ENDINGS = (
    "",
    "!",
    "",
    "...",
    "!!",
    ".",
    "!!!",
    "?!",
    " lol",
    " tbh",
    " haha",
    " smh",
    " xx",
    " fr",
)

FACES = (
    (":(", "😭", ":-(", "😡", ":'(", "😢", "=(", "💔", "😩", "🙄", ">:(", "😴", "🤮", ": ("),
    (":)", "😍", ":D", "❤️", ":-)", "😂", ";)", "😀", "=)", "🎉", "<3", "🥰", "🙌", ": )"),
)

MOOD_TAGS = (
    ("fail", "ugh", "sad", "worstdayever", "help", "fml", "annoyed", "nope", "tired"),
    ("win", "yay", "happy", "blessed", "bestdayever", "love", "goodtimes", "bliss", "smile"),
)

NAMES = (
    "mia", "leo", "zoe", "sam", "ana", "max", "lily", "omar", "kate", "jo", "finn", "priya", "noah",
    "ella", "ravi", "chloe", "ben", "yuki", "tom", "sara", "ivan", "nina", "luca", "amy", "theo",
    "ruby", "hugo", "lena", "carlos", "ines",
)  # fmt: skip

HOBBIES = (
    "", "_", "xo", "_runs", "codes", "_bakes", "sings", "_reads", "plays", "_draws", "loves_tea",
    "thecat", "_skates", "hikes", "_official", "dances", "_dj", "gardens", "writes", "_cooks",
)  # fmt: skip
