import { randomInt } from "node:crypto";

const ADJECTIVES =
  "able bold brave bright brisk calm clear clever cosy deep eager early fair fast fine fond free fresh gentle glad golden grand great green happy keen kind large lively lucky merry mild neat nimble noble proud pure quick quiet rapid ready rich ripe safe sharp silver simple sleek smart smooth snug soft solid spry still strong sunny swift tall tidy true vast vivid warm wide wise young".split(
    " ",
  );
const NOUNS =
  "anchor bay beacon boat bridge buoy canal cape cliff cloud coast coral cove crane creek crest current deck delta dock dune ferry fjord foam gale gull harbor haven heron island jetty keel kelp lagoon lantern levee mast mist moon oar ocean otter pearl pier pine pond port quay reef river rope rudder sail sand seal shell shore sound spray star stone strait stream sun surf tern tide vessel wave wharf wind".split(
    " ",
  );

/** A readable name such as `calm-harbor-4821`. `pick` gives an integer from 0 to below its argument. */
export function randomName(pick: (below: number) => number = (below) => randomInt(below)): string {
  const adjective = ADJECTIVES[pick(ADJECTIVES.length)] ?? "calm";
  const noun = NOUNS[pick(NOUNS.length)] ?? "harbor";
  return `${adjective}-${noun}-${String(pick(10_000)).padStart(4, "0")}`;
}

/** A random name that none of `taken` has, and that is added to it. */
export function freshName(taken: Set<string>, pick?: (below: number) => number): string {
  for (;;) {
    const name = randomName(pick);
    if (taken.has(name)) continue;
    taken.add(name);
    return name;
  }
}
