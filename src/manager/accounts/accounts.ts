import type { Clock } from "../../kit/clock.ts";
import type { Logger } from "../../kit/log.ts";
import type { EventLog } from "../events/log.ts";
import type { Mounted } from "../http/handle.ts";
import type { Policies } from "../policies/service.ts";
import type { Store } from "../store/store.ts";
import { type Authenticator, createAuthenticator } from "./authenticator.ts";
import { createLogins, type Logins } from "./logins.ts";
import { createPasswords, type PasswordCost, type Passwords } from "./passwords.ts";
import { createRevocations, type Revocations } from "./revocations.ts";
import { accountApi } from "./routes.ts";
import { createTokens, type Tokens } from "./tokens.ts";
import { createUsers, type Users } from "./users.ts";

export type Accounts = {
  readonly users: Users;
  readonly logins: Logins;
  readonly tokens: Tokens;
  readonly passwords: Passwords;
  readonly authenticator: Authenticator;
  readonly revocations: Revocations;
  readonly routes: readonly Mounted[];
};

/** Everything about who may come in: users, their logins and tokens. */
export function createAccounts(deps: {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: EventLog;
  readonly policies: Policies;
  /** Cheaper hashes for tests. */
  readonly passwordCost?: PasswordCost;
}): Accounts {
  const authenticator = createAuthenticator(deps);
  const revocations = createRevocations(deps);
  const passwords = createPasswords(deps.passwordCost);
  const parts = { ...deps, authenticator, revocations, passwords };
  const users = createUsers(parts);
  const logins = createLogins(parts);
  const tokens = createTokens(parts);
  const routes = accountApi({ users, logins, tokens });
  return { users, logins, tokens, passwords, authenticator, revocations, routes };
}
