#!/usr/bin/env python3
"""Generates film titles with their numbers of votes, as CSV with the columns title and votes.

    examples/movies/titles.py [COUNT] > titles.csv

The same count gives the same titles. A few titles have most of the votes, as with real films.
"""

import csv
import random
import sys

ADJECTIVES = """
Amazing Ancient Angry Bitter Black Blue Bold Brave Bright Broken Burning Calm Careless Clever Cold Crazy Cruel Curious Dancing Dangerous Dark
Dead Deep Desperate Distant Divine Double Dreaming Eastern Easy Electric Empty Endless Eternal Faithful Fallen False Famous Fatal Final Flying
Forbidden Forgotten Frozen Gentle Giant Glass Golden Good Grand Great Green Happy Haunted Hidden High Hollow Holy Hungry Icy Impossible Infinite
Innocent Invisible Iron Jealous Last Laughing Little Lonely Long Lost Loud Lucky Mad Magic Midnight Mighty Missing Modern Mysterious Naked
Narrow New Noble Northern Old Open Painted Pale Patient Perfect Polite Poor Precious Proud Quiet Rainy Rapid Rare Reckless Red Restless Rising
Royal Running Sacred Sad Salty Savage Scarlet Second Secret Shadow Sharp Silent Silver Simple Sinking Sleeping Slow Small Smiling Solid Southern
Stolen Strange Stubborn Sudden Sweet Tall Tender Terrible Third Thirsty Tiny Tired True Twisted Unknown Upper Vanishing Velvet Violent Wandering
Warm Wasted Western White Wicked Wild Winter Wise Wonderful Wooden Yellow Young Zealous
""".split()
NOUNS = """
Actor Alibi Angel Answer Apple Army Arrow Artist Autumn Bandit Battle Bear Bell Bird Blade Blood Boat Bone Book Border Boy Bridge Brother Butterfly
Candle Captain Castle Cat Chance Child Circus City Clock Cloud Coast Code Colony Cousin Crown Dance Daughter Dawn Day Desert Detective Diamond
Doctor Dog Door Dragon Dream Driver Duel Dust Eagle Earth Echo Edge Elephant Emperor Empire Enemy Engine Escape Evening Expedition Eye Family
Farmer Father Fire Fish Flower Forest Fortune Fox Friend Frontier Future Galaxy Gambler Game Garden Ghost Giant Girl Gold Harbour Hare Hat Heart
Hero Highway Hill Home Honour Horizon Horse Hotel House Hunter Idea Island Jewel Journey Judge Jungle Key King Kingdom Kiss Knight Lady Lake Land
Lantern Law Legend Letter Lie Life Light Lion Love Machine Magician Mask Master Mathematician Memory Mirror Moment Moon Morning Mother Mountain
Murder Museum Music Mystery Name Night Ocean Office Orchard Outlaw Palace Paper Party Passenger Path Pearl Picture Pilot Pirate Planet Poet Prince
Prisoner Promise Queen Question Rain Raven Rebel Return Revenge Riddle River Road Robot Rose Sailor Scientist Sea Season Secret Shadow Sheriff Ship
Silence Singer Sister Sky Snow Soldier Son Song Spring Spy Star Station Storm Story Stranger Street Summer Sun Sword Teacher Thief Thunder Tiger
Time Tower Town Traveller Treasure Tree Trial Truth Twin Valley Village Voice Voyage Wall War Watchmaker Water Wedding Whale Wind Window Winter Witch
Witness Wolf Woman Wonder World Year
""".split()
PLACES = """
Amsterdam Berlin Bombay Cairo Casablanca Chicago Dublin Havana Istanbul Kyoto Lisbon London Madrid Mars Memphis Monaco Moscow Naples Nairobi Oslo Oz
Paris Prague Rome Saturn Seville Shanghai Tangier Texas Tokyo Venice Vienna Warsaw
""".split()
FORMS = [
    (30, "The {a} {n}"),
    (12, "{a} {n}"),
    (12, "The {n} of the {a} {n2}"),
    (10, "The {n} and the {n2}"),
    (8, "{n} of {p}"),
    (8, "A {n} in {p}"),
    (6, "The {a} {n} of {p}"),
    (5, "{n}, {n2} and {n3}"),
    (5, "My {a} {n}"),
    (4, "How to Find a {a} {n}"),
    (4, "{p}, My {n}"),
    (3, "The Last {n} in {p}"),
    (2, "Café {n} in {p}"),
]
PARTS = ["", "", "", "", "", " II", " III", ": The Return", ": The {a2} {n4}", " in {p2}"]


def titles(count):
    """So many pairs of a title and its votes; no title comes twice."""
    draw = random.Random(count)
    forms = [form for weight, form in FORMS for _ in range(weight)]
    seen = set()
    while len(seen) < count:
        words = {name: draw.choice(ADJECTIVES) for name in ("a", "a2")}
        words |= {name: draw.choice(NOUNS) for name in ("n", "n2", "n3", "n4")}
        words |= {name: draw.choice(PLACES) for name in ("p", "p2")}
        title = (draw.choice(forms) + draw.choice(PARTS)).format(**words)
        if title not in seen:
            seen.add(title)
            yield title, int(draw.paretovariate(0.9) * 10)


if __name__ == "__main__":
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["title", "votes"])
    writer.writerows(titles(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
