import type { z } from "zod";
import { type policy, policyLimits } from "../../contract/cluster.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { newId, type PolicyId } from "../../kit/ids.ts";
import { pageOf, parseCursor } from "../http/cursor.ts";
import type { PolicyTable } from "../store/schema.ts";
import type { Db, Store, Tx } from "../store/store.ts";
import { NO_LIMITS, type PolicyLimits, type ResourcePolicy } from "./limits.ts";
import * as repository from "./repository.ts";

type Policy = z.output<typeof policy>;

export type Policies = {
  /** Makes the policy `default`, which limits nothing, where there is no default one. */
  ensureDefault(): Promise<void>;
  list(page: {
    readonly cursor?: string | undefined;
    readonly limit: number;
  }): Promise<{ items: Policy[]; next: string | null }>;
  /** Changes the limits that are given; null takes a limit away. Throws `policy-not-found`. */
  update(name: string, change: Partial<PolicyLimits>): Promise<Policy>;
  /** Id of the policy that new users get. */
  defaultId(tx: Tx): Promise<PolicyId>;
  /** Throws `policy-not-found`. */
  idOf(tx: Tx, name: string): Promise<PolicyId>;
  /** The rules that a user with this policy is under, within the caller's snapshot or transaction. */
  of(db: Db | Tx, id: PolicyId): Promise<ResourcePolicy>;
};

const SCOPE = "policies";

function notFound(name: string): BerthError {
  return new BerthError("policy-not-found", `There is no resource policy "${name}".`, { field: "policy" });
}

/** A limit that a newer version added is none in a row of an older one. */
function limitsOf(row: PolicyTable): PolicyLimits {
  const stored = policyLimits.partial().parse(JSON.parse(row.limits));
  return {
    ...NO_LIMITS,
    ...Object.fromEntries(Object.entries(stored).filter(([, value]) => value !== undefined)),
  };
}

function policyOf(row: PolicyTable): Policy {
  return {
    id: row.id,
    name: row.name,
    isDefault: row.is_default === 1,
    limits: limitsOf(row),
    createdAt: new Date(row.created_at).toISOString(),
  };
}

export function createPolicies(deps: { readonly store: Store; readonly clock: Clock }): Policies {
  const { store, clock } = deps;

  return {
    ensureDefault: () =>
      store.write(async (tx) => {
        if ((await repository.findDefault(tx)) !== undefined) return;
        await repository.insertPolicy(tx, {
          id: newId<PolicyId>(clock),
          name: "default",
          is_default: 1,
          limits: JSON.stringify(NO_LIMITS),
          created_at: clock.wall(),
        });
      }),

    list: ({ cursor, limit }) =>
      store.read(async (db) => {
        const key = cursor === undefined ? undefined : parseCursor(SCOPE, cursor, 2);
        const after = key === undefined ? undefined : ([Number(key[0]), String(key[1])] as const);
        const rows = await repository.listPolicies(db, { after, limit: limit + 1 });
        return pageOf(rows, limit, SCOPE, (row) => [row.created_at, row.id], policyOf);
      }),

    update: (name, change) =>
      store.write(async (tx) => {
        const row = await repository.findPolicyByName(tx, name);
        if (row === undefined) throw notFound(name);
        const limits = JSON.stringify({ ...limitsOf(row), ...change });
        await repository.setLimits(tx, row.id, limits);
        return policyOf({ ...row, limits });
      }),

    defaultId: async (tx) => {
      const row = await repository.findDefault(tx);
      if (row === undefined) throw new Error("there is no default policy");
      return row.id;
    },

    idOf: async (tx, name) => {
      const row = await repository.findPolicyByName(tx, name);
      if (row === undefined) throw notFound(name);
      return row.id;
    },

    of: async (db, id) => {
      const row = await repository.findPolicy(db, id);
      if (row === undefined) throw new Error(`there is no policy ${id}`);
      return { ...limitsOf(row), name: row.name };
    },
  };
}
