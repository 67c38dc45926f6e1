import { type Permission, type Role, roleMay } from "../../contract/permissions.ts";
import type { WallMs } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import type { PolicyId, TokenId, UserId } from "../../kit/ids.ts";

/** A signed-in person, with what features need to know of them. */
export type UserPrincipal = {
  readonly kind: "user";
  readonly userId: UserId;
  readonly email: string;
  readonly name: string;
  readonly role: Role;
  readonly uid: number;
  readonly gid: number;
  readonly policyId: PolicyId;
  readonly tokenId: TokenId;
  readonly tokenKind: "api" | "login";
  readonly expiresAt: WallMs | null;
};

/** Root on the manager's own machine, through the admin socket: every right, but nobody who could own a thing. */
export type LocalPrincipal = { readonly kind: "local" };

/** Who makes a request. */
export type Principal = UserPrincipal | LocalPrincipal;

export const LOCAL_ROOT: LocalPrincipal = { kind: "local" };

export function may(principal: Principal, permission: Permission): boolean {
  return principal.kind === "local" || roleMay(principal.role, permission);
}

/** Throws `not-permitted`, naming the right that is missing. */
export function mustMay(principal: Principal, permission: Permission): void {
  if (may(principal, permission)) return;
  throw new BerthError(
    "not-permitted",
    `This needs the right ${permission}, which your role does not have.`,
    {
      details: { permission },
    },
  );
}

/** How histories and logs name who did it. */
export function actorOf(principal: Principal): string {
  return principal.kind === "local" ? "local root" : principal.email;
}

/** The person behind a request that makes a thing of somebody's own. Throws `needs-a-user` for local root. */
export function ownerOf(principal: Principal): UserPrincipal {
  if (principal.kind === "user") return principal;
  throw new BerthError(
    "needs-a-user",
    "Local root has no account that could own this: sign in (berth login URL) and ask again.",
  );
}
