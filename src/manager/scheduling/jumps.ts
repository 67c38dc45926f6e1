import type { Clock, WallMs } from "../../kit/clock.ts";

export interface ClockJumps {
  /** Looks whether the wall clock was stepped since the last look. */
  look(): void;
  /** The moment `at`, stored before, as the wall clock counts now. */
  shifted(at: WallMs): WallMs;
}

/** Smaller differences are drift, which time synchronisation takes away by itself. */
const JUMP_MS = 5_000;

/**
 * Follows steps of the wall clock against the one that never steps. Waiting times that were under way move along
 * with a step, so that none of them is over all at once.
 */
export function watchClockJumps(clock: Clock): ClockJumps {
  let offset = clock.wall() - clock.mono();
  const jumps: { before: WallMs; by: number }[] = [];
  return {
    look: () => {
      const now = clock.wall() - clock.mono();
      const by = now - offset;
      if (Math.abs(by) < JUMP_MS) return;
      jumps.push({ before: clock.wall() - by, by });
      offset = now;
    },
    shifted: (at) => jumps.reduce((moved, jump) => (moved <= jump.before ? moved + jump.by : moved), at),
  };
}
