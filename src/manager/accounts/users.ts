import type { z } from "zod";
import type { accountRoutes, createUser, User, updateUser } from "../../contract/accounts.ts";
import type { Role } from "../../contract/permissions.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { newId, type PolicyId, type TokenId, type UserId } from "../../kit/ids.ts";
import type { EventLog } from "../events/log.ts";
import { pageOf, parseCursor } from "../http/cursor.ts";
import type { Policies } from "../policies/service.ts";
import type { Db, Store, Tx } from "../store/store.ts";
import type { Authenticator } from "./authenticator.ts";
import { type Passwords, randomPassword } from "./passwords.ts";
import { may, type Principal } from "./principal.ts";
import * as repository from "./repository.ts";
import type { RevocationReason, Revocations } from "./revocations.ts";
import { userOf } from "./shapes.ts";

export type CreateUser = z.output<typeof createUser>;
export type UpdateUser = z.output<typeof updateUser>;
type ListQuery = z.output<NonNullable<(typeof accountRoutes.listUsers)["query"]>>;

export type Users = {
  list(query: ListQuery): Promise<{ items: User[]; next: string | null }>;
  /** By id or e-mail. Throws `user-not-found`. */
  get(key: string): Promise<User>;
  /** Id of a user by id or e-mail, within the caller's snapshot. Throws `user-not-found`. */
  idOf(db: Db, key: string): Promise<UserId>;
  /** Without a password in the request a random one is made and returned. Throws `email-in-use`, `not-permitted`. */
  create(request: CreateUser, by: Principal): Promise<{ user: User; password: string | null }>;
  /** Throws `user-not-found`, `policy-not-found`, `last-superadmin`, `not-permitted`. */
  update(key: string, change: UpdateUser, by: Principal): Promise<User>;
  /** Sets a password and ends the user's logins; API tokens stay. */
  resetPassword(
    key: string,
    password: string | undefined,
    by: Principal,
  ): Promise<{ password: string | null }>;
  /** Forgets failed sign-ins. Returns for how many addresses. */
  unlock(key: string, by: Principal): Promise<number>;
};

export type UsersDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly events: EventLog;
  readonly passwords: Passwords;
  readonly policies: Policies;
  readonly authenticator: Authenticator;
  readonly revocations: Revocations;
};

const SCOPE = "users";

export function userNotFound(key: string): BerthError {
  return new BerthError("user-not-found", `There is no user "${key.slice(0, 100)}".`, { field: "user" });
}

/** An administrator manages people; those who manage are managed by superadmins (and by root on the machine). */
function mustManage(by: Principal, role: Role): void {
  if (role === "user" || may(by, "user.write-admins")) return;
  throw new BerthError("not-permitted", `Only a superadmin may manage accounts with the role ${role}.`, {
    details: { permission: "user.write-admins" },
  });
}

export function createUsers(deps: UsersDeps): Users {
  const { store, clock, events, passwords, policies, authenticator, revocations } = deps;

  async function existing(db: Db | Tx, key: string): Promise<repository.UserRow> {
    const row = await repository.findUser(db, key);
    if (row === undefined) throw userNotFound(key);
    return row;
  }

  async function shown(db: Db | Tx, rows: readonly repository.UserRow[]): Promise<User[]> {
    const emails = rows.map((row) => row.email);
    const locks = await repository.locksOf(db, emails, clock.wall());
    return rows.map((row) => userOf(row, locks.get(row.email) ?? null));
  }

  async function shownOne(db: Db | Tx, key: string): Promise<User> {
    const row = await existing(db, key);
    const [user] = await shown(db, [row]);
    if (user === undefined) throw userNotFound(key);
    return user;
  }

  const tell = (tx: Tx, user: User) =>
    events.append(tx, {
      kind: "user.updated",
      subject: user.id,
      ownerId: user.id as UserId,
      data: { email: user.email, role: user.role, active: user.active },
    });

  async function keepASuperadmin(tx: Tx, row: repository.UserRow, change: UpdateUser): Promise<void> {
    const leaves = (change.role ?? row.role) !== "superadmin" || change.active === false;
    if (row.role !== "superadmin" || row.active === 0 || !leaves) return;
    if ((await repository.countActiveSuperadmins(tx)) > 1) return;
    throw new BerthError(
      "last-superadmin",
      `${row.email} is the last active superadmin: make another one first, or nobody could manage this cluster.`,
    );
  }

  function changeOf(change: UpdateUser, policyId: PolicyId | undefined): repository.UserChange {
    return {
      ...(change.name === undefined ? {} : { name: change.name }),
      ...(change.role === undefined ? {} : { role: change.role }),
      ...(change.active === undefined ? {} : { active: change.active ? 1 : 0 }),
      ...(change.uid === undefined ? {} : { uid: change.uid }),
      ...(change.gid === undefined ? {} : { gid: change.gid }),
      ...(policyId === undefined ? {} : { policy_id: policyId }),
    };
  }

  function cutAfter(tx: Tx, userId: UserId, reason: RevocationReason | undefined): void {
    tx.afterCommit(() => {
      authenticator.forgetAll();
      if (reason !== undefined) revocations.revokeUser(userId, reason);
    });
  }

  return {
    list: ({ q, active, role, cursor, limit }) =>
      store.read(async (db) => {
        const key = cursor === undefined ? undefined : parseCursor(SCOPE, cursor, 2);
        const rows = await repository.listUsers(db, {
          q,
          role,
          active: active === undefined ? undefined : active === "true",
          after: key === undefined ? undefined : [Number(key[0]), String(key[1])],
          limit: limit + 1,
        });
        const { items, next } = pageOf(
          rows,
          limit,
          SCOPE,
          (row) => [row.created_at, row.id],
          (row) => row,
        );
        return { items: await shown(db, items), next };
      }),

    get: (key) => store.read((db) => shownOne(db, key)),

    idOf: async (db, key) => (await existing(db, key)).id,

    create: async (request, by) => {
      mustManage(by, request.role);
      const made = request.password === undefined ? randomPassword() : null;
      const hash = await passwords.hash(request.password ?? made ?? "");
      const user = await store.write(async (tx) => {
        if ((await repository.findUser(tx, request.email)) !== undefined) {
          throw new BerthError("email-in-use", `${request.email} has an account already.`, {
            field: "email",
          });
        }
        const id = newId<UserId>(clock);
        await repository.insertUser(tx, {
          id,
          email: request.email,
          name: request.name ?? request.email.slice(0, request.email.indexOf("@")),
          role: request.role,
          active: 1,
          password_hash: hash,
          uid: request.uid,
          gid: request.gid,
          policy_id: await policies.defaultId(tx),
          created_at: clock.wall(),
          last_login_at: null,
        });
        const shownUser = await shownOne(tx, id);
        await tell(tx, shownUser);
        return shownUser;
      });
      return { user, password: made };
    },

    update: (key, change, by) =>
      store.write(async (tx) => {
        const row = await existing(tx, key);
        mustManage(by, row.role);
        mustManage(by, change.role ?? "user");
        await keepASuperadmin(tx, row, change);
        const policyId = change.policy === undefined ? undefined : await policies.idOf(tx, change.policy);
        await repository.updateUser(tx, row.id, changeOf(change, policyId));
        const deactivated = change.active === false && row.active === 1;
        if (deactivated) await repository.endTokens(tx, { userId: row.id }, clock.wall());
        const roleChanged = change.role !== undefined && change.role !== row.role;
        cutAfter(tx, row.id, deactivated ? "account-inactive" : roleChanged ? "role-changed" : undefined);
        const user = await shownOne(tx, row.id);
        await tell(tx, user);
        return user;
      }),

    resetPassword: async (key, password, by) => {
      const made = password === undefined ? randomPassword() : null;
      const hash = await passwords.hash(password ?? made ?? "");
      await store.write(async (tx) => {
        const row = await existing(tx, key);
        mustManage(by, row.role);
        await repository.updateUser(tx, row.id, { password_hash: hash });
        const ended = await repository.endTokens(tx, { userId: row.id, kind: "login" }, clock.wall());
        cutTokensAfter(tx, ended);
      });
      return { password: made };
    },

    unlock: (key, by) =>
      store.write(async (tx) => {
        const row = await existing(tx, key);
        mustManage(by, row.role);
        return repository.forgetFailures(tx, row.email);
      }),
  };

  function cutTokensAfter(tx: Tx, ended: readonly TokenId[]): void {
    tx.afterCommit(() => {
      authenticator.forgetAll();
      for (const id of ended) revocations.revokeToken(id, "token-ended");
    });
  }
}
