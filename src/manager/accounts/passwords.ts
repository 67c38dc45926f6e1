import { randomInt } from "node:crypto";
import { BerthError } from "../../kit/errors.ts";

export type Passwords = {
  hash(password: string): Promise<string>;
  /** Whether the password fits. Without a hash (an unknown user) it takes as long and says no. */
  verify(password: string, hash: string | undefined): Promise<boolean>;
};

export type PasswordCost = {
  /** Memory of one hash in KiB. */
  readonly memoryKiB: number;
  readonly passes: number;
};

/** OWASP's least for argon2id. */
const COST: PasswordCost = { memoryKiB: 19_456, passes: 2 };
/** Hashes at once and waiting: a flood of sign-ins must take neither all memory nor all cores. */
const AT_ONCE = 2;
const WAITING = 100;

// Without letters and digits that people mix up.
const ALPHABET = "abcdefghjkmnpqrstuvwxyzACDEFGHJKLMNPQRTUVWXY3479";

/** A random password of 24 characters, in groups: more than 120 bits. */
export function randomPassword(): string {
  const group = () => Array.from({ length: 6 }, () => ALPHABET[randomInt(ALPHABET.length)]).join("");
  return Array.from({ length: 4 }, group).join("-");
}

function createLimiter() {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async function limited<T>(task: () => Promise<T>): Promise<T> {
    if (running >= AT_ONCE) {
      if (waiting.length >= WAITING) {
        throw new BerthError(
          "too-many-requests",
          "Too many people sign in at once: try again in a few seconds.",
          {
            details: { retryAfterSeconds: 5 },
          },
        );
      }
      await new Promise<void>((resolve) => waiting.push(resolve));
    } else running++;
    try {
      return await task();
    } finally {
      // The place is handed on, so nobody can slip in between.
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    }
  };
}

/** Hashing with argon2id, a bounded number at once. Throws `too-many-requests` when too many wait. */
export function createPasswords(cost: PasswordCost = COST): Passwords {
  const limited = createLimiter();
  const argon = { algorithm: "argon2id", memoryCost: cost.memoryKiB, timeCost: cost.passes } as const;
  const hash = (password: string) => limited(() => Bun.password.hash(password, argon));
  let decoy: Promise<string> | undefined;

  return {
    hash,
    verify: async (password, known) => {
      decoy ??= hash(randomPassword());
      const against = known ?? (await decoy);
      // An empty password is an error to the runtime, not a wrong one.
      const fits = password !== "" && (await limited(() => Bun.password.verify(password, against)));
      return known !== undefined && fits;
    },
  };
}
