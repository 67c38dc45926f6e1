import { expect, test } from "bun:test";
import { manualClock } from "../../kit/clock.ts";
import { newId, type PolicyId, type TokenId, type UserId } from "../../kit/ids.ts";
import type { UserPrincipal } from "./principal.ts";
import { createRevocations } from "./revocations.ts";

const DAY = 24 * 3_600_000;

function bench() {
  const clock = manualClock();
  const revocations = createRevocations({ clock });
  const cut: string[] = [];
  const open = (name: string, expiresIn: number | null) => {
    const principal: UserPrincipal = {
      kind: "user",
      userId: newId<UserId>(clock),
      email: `${name}@lab.test`,
      name,
      role: "user",
      uid: 1000,
      gid: 1000,
      policyId: newId<PolicyId>(clock),
      tokenId: newId<TokenId>(clock),
      tokenKind: "api",
      expiresAt: expiresIn === null ? null : clock.wall() + expiresIn,
    };
    return {
      principal,
      release: revocations.onRevoked(principal, (reason) => cut.push(`${name}: ${reason}`)),
    };
  };
  return { clock, revocations, cut, open };
}

test("what a token opened is cut when the token expires, and not before", () => {
  const { clock, cut, open, revocations } = bench();
  open("soon", 90_000);
  open("late", 3 * DAY);
  open("never", null);
  clock.advance(89_999);
  expect(cut).toEqual([]);
  clock.advance(1);
  expect(cut).toEqual(["soon: token-ended"]);
  clock.advance(4 * DAY);
  expect(cut).toEqual(["soon: token-ended", "late: token-ended"]);
  expect(revocations.size()).toBe(1);
});

test("a wall clock that is set forward, or a machine that slept, is noticed within a minute", () => {
  const { clock, cut, open } = bench();
  open("one", DAY);
  clock.stepWall(DAY);
  clock.advance(60_000);
  expect(cut).toEqual(["one: token-ended"]);
});

test("a wall clock that is set back gives the time again", () => {
  const { clock, cut, open } = bench();
  open("one", 60_000);
  clock.stepWall(-DAY);
  clock.advance(DAY);
  expect(cut).toEqual([]);
  clock.advance(60_000);
  expect(cut).toEqual(["one: token-ended"]);
});

test("what was closed before is not cut, and what was revoked is not cut again", () => {
  const { clock, cut, open, revocations } = bench();
  open("closed", 1_000).release();
  const { principal, release } = open("revoked", 1_000);
  revocations.revokeToken(principal.tokenId, "token-ended");
  release();
  clock.advance(2_000);
  expect(cut).toEqual(["revoked: token-ended"]);
});
