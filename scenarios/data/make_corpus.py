#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes corpus.txt: the diary of a workshop that builds orreries, put together from small parts.

Enough regularity for a small model to learn from, and no text of anybody else's.
Usage: make_corpus.py > corpus.txt
"""
import random

PLANETS = ["Mercury", "Venus", "the Earth", "the Moon", "Mars", "Jupiter", "Saturn", "Uranus"]
PEOPLE = ["Ada", "Bruno", "Clara", "Dmitri", "Elif", "Farid", "Greta", "Hana"]
METALS = ["brass", "steel", "bronze", "copper", "silver"]
PARTS = ["wheel", "pinion", "arm", "bearing", "ring", "shaft", "spring", "plate"]
TOOLS = ["file", "lathe", "gauge", "hammer", "drill", "saw", "lens", "compass"]
WEATHER = ["rain on the roof", "a clear sky", "fog in the yard", "frost on the glass", "warm wind"]
NUMBERS = {7: "seven", 12: "twelve", 18: "eighteen", 24: "twenty-four", 29: "twenty-nine",
           48: "forty-eight", 60: "sixty", 88: "eighty-eight", 96: "ninety-six"}
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]


def sentence(r):
    who, other = r.sample(PEOPLE, 2)
    part, second = r.sample(PARTS, 2)
    metal, tool, planet = r.choice(METALS), r.choice(TOOLS), r.choice(PLANETS)
    teeth, more = r.sample(sorted(NUMBERS), 2)
    total = teeth + more
    return r.choice([
        f"{who} cut a {part} of {metal} for {planet} and tried it with the {tool}.",
        f"The {part} that carries {planet} turned too slowly, so {who} made it again.",
        f"A wheel of {NUMBERS[teeth]} teeth drives a wheel of {NUMBERS[more]} teeth; "
        f"together they have {total}.",
        f"{who} asked {other} for the {tool}, and {other} gave it back before noon.",
        f"When the {part} is worn, the {second} has to bear the weight of {planet}.",
        f"{planet[0].upper() + planet[1:]} stood where {who} had drawn it, and nobody touched "
        f"the {part}.",
        f"If the {metal} is cold, the {part} is {r.choice(['a hair', 'a shade', 'a little'])} "
        f"too small, and {who} waits until it is warm.",
        f"{who} counted the teeth of the {part} twice: {teeth}, and again {teeth}.",
        f"Nothing was wrong with the {part}; it was the {second} that had come loose.",
        f"{other} turned the crank {NUMBERS[teeth]} times, and {planet} came back to its mark.",
        f"{who} wrote down what the {tool} showed, and {other} read it aloud.",
        f"Between the {part} and the {second} there was room for a sheet of paper.",
    ])


def entry(r, number):
    lines = [f"Day {number}, {DAYS[number % len(DAYS)]}. {r.choice(WEATHER).capitalize()}."]
    lines += [sentence(r) for _ in range(r.randint(4, 8))]
    if r.random() < 0.3:
        lines.append(f"We stopped at {r.randint(4, 8)} o'clock.")
    return " ".join(lines)


def main():
    r = random.Random(1704)
    print("\n\n".join(entry(r, day) for day in range(1, 301)))


main()
