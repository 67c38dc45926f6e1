import type { Me, Token, User } from "../../contract/accounts.ts";
import { ROLE_PERMISSIONS } from "../../contract/permissions.ts";
import type { WallMs } from "../../kit/clock.ts";
import type { TokenTable } from "../store/schema.ts";
import type { UserRow } from "./repository.ts";

const iso = (at: WallMs): string => new Date(at).toISOString();
const isoOrNull = (at: WallMs | null): string | null => (at === null ? null : iso(at));

/** How the API shows a user. */
export function userOf(row: UserRow, lockedUntil: WallMs | null): User {
  return {
    id: row.id,
    email: row.email,
    name: row.name,
    role: row.role,
    active: row.active === 1,
    uid: row.uid,
    gid: row.gid,
    policy: row.policy,
    createdAt: iso(row.created_at),
    lastLoginAt: isoOrNull(row.last_login_at),
    lockedUntil: isoOrNull(lockedUntil),
  };
}

export function tokenOf(row: TokenTable): Token {
  return {
    id: row.id,
    name: row.name,
    createdAt: iso(row.created_at),
    expiresAt: isoOrNull(row.expires_at),
    lastUsedAt: isoOrNull(row.last_used_at),
  };
}

export function meOf(row: UserRow, expiresAt: WallMs | null): Me {
  return {
    user: userOf(row, null),
    permissions: [...ROLE_PERMISSIONS[row.role]].sort(),
    expiresAt: isoOrNull(expiresAt),
  };
}
