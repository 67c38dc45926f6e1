/** Roles, each with all rights of the one before it. */
export const ROLES = ["user", "admin", "superadmin"] as const;
export type Role = (typeof ROLES)[number];

/**
 * Rights that a route may ask for. A right on a thing (`session.read`) reaches one's own things; the matching `…-any`
 * right, checked by the feature's service, reaches everybody's.
 */
export const PERMISSIONS = [
  "session.create",
  "session.read",
  "session.write",
  "session.exec",
  "session.read-any",
  "session.write-any",
  "session.exec-any",
  "session.priority",
  "image.read",
  "image.write",
  "group.read",
  "group.write",
  "agent.read",
  "agent.write",
  "agent.remove",
  "join-token.write",
  "policy.read",
  "policy.write",
  "user.read",
  "user.write",
  "user.write-admins",
  "token.own",
  "event.read",
  "metrics.read",
] as const;
export type Permission = (typeof PERMISSIONS)[number];

const USER: readonly Permission[] = [
  "session.create",
  "session.read",
  "session.write",
  "session.exec",
  "image.read",
  "group.read",
  "agent.read",
  "token.own",
  "event.read",
];
const ADMIN: readonly Permission[] = [
  ...USER,
  "session.read-any",
  "session.write-any",
  "session.priority",
  "image.write",
  "group.write",
  "agent.write",
  "policy.read",
  "user.read",
  "user.write",
  "metrics.read",
];

/** What each role may do. A superadmin may do everything. */
export const ROLE_PERMISSIONS: Readonly<Record<Role, ReadonlySet<Permission>>> = {
  user: new Set(USER),
  admin: new Set(ADMIN),
  superadmin: new Set(PERMISSIONS),
};

export function roleMay(role: Role, permission: Permission): boolean {
  return ROLE_PERMISSIONS[role].has(permission);
}
