import type { Migration } from "../migrate.ts";
import { first } from "./0001-first.ts";

/** Every migration in order; each has the number of its file. A migration that was released never changes. */
export const MIGRATIONS: readonly Migration[] = [first];
