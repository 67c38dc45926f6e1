import { z } from "zod";
import { ROLES } from "./permissions.ts";
import { durationInput, email, id, label, page, pageQuery, plainName, timestamp } from "./primitives.ts";
import { defineRoute, needs, PUBLIC, SIGNED_IN } from "./route.ts";

const role = z.enum(ROLES);
const password = z.string().min(8, "A password has at least 8 characters.").max(256);
const posixId = z.int().min(1).max(2_147_483_647);

export const user = z.object({
  id,
  email: z.string(),
  name: z.string(),
  role,
  active: z.boolean(),
  uid: z.int(),
  gid: z.int(),
  policy: z.string(),
  createdAt: timestamp,
  lastLoginAt: timestamp.nullable(),
  lockedUntil: timestamp.nullable(),
});
export type User = z.infer<typeof user>;

export const createUser = z.strictObject({
  email,
  name: label.optional(),
  role: role.default("user"),
  /** Without one a random password is made and returned once. */
  password: password.optional(),
  uid: posixId.default(1000),
  gid: posixId.default(1000),
});
export const updateUser = z.strictObject({
  name: label.optional(),
  role: role.optional(),
  active: z.boolean().optional(),
  uid: posixId.optional(),
  gid: posixId.optional(),
  policy: plainName.optional(),
});

export const login = z.strictObject({ email, password: z.string().max(256) });

export const token = z.object({
  id,
  name: z.string(),
  createdAt: timestamp,
  expiresAt: timestamp.nullable(),
  lastUsedAt: timestamp.nullable(),
});
export type Token = z.infer<typeof token>;

export const me = z.object({ user, permissions: z.array(z.string()), expiresAt: timestamp.nullable() });
export type Me = z.infer<typeof me>;

const userParam = z.object({ user: z.string().max(254).meta({ description: "User id or e-mail" }) });

export const accountRoutes = {
  login: defineRoute({
    id: "auth.login",
    method: "POST",
    path: "/api/v1/auth/login",
    tag: "Accounts",
    summary: "Sign in with e-mail and password; sets a cookie",
    access: PUBLIC,
    body: login,
    answer: { kind: "json", status: 200, schema: me },
    errors: ["wrong-credentials", "account-locked", "account-inactive"],
  }),
  logout: defineRoute({
    id: "auth.logout",
    method: "POST",
    path: "/api/v1/auth/logout",
    tag: "Accounts",
    summary: "Sign out: ends the cookie's session or the token in use",
    access: SIGNED_IN,
    answer: { kind: "empty", status: 204 },
  }),
  me: defineRoute({
    id: "auth.me",
    method: "GET",
    path: "/api/v1/me",
    tag: "Accounts",
    summary: "Who am I",
    access: SIGNED_IN,
    answer: { kind: "json", status: 200, schema: me },
  }),
  changePassword: defineRoute({
    id: "auth.change-password",
    method: "POST",
    path: "/api/v1/me/password",
    tag: "Accounts",
    summary: "Change one's own password; ends the other logins",
    access: SIGNED_IN,
    body: z.strictObject({ current: z.string().max(256), next: password }),
    answer: { kind: "empty", status: 204 },
    errors: ["wrong-credentials"],
  }),
  listUsers: defineRoute({
    id: "users.list",
    method: "GET",
    path: "/api/v1/users",
    tag: "Users",
    summary: "List users",
    access: needs("user.read"),
    query: z.strictObject({
      ...pageQuery,
      q: z.string().max(100).optional(),
      active: z.enum(["true", "false"]).optional(),
      role: role.optional(),
    }),
    answer: { kind: "json", status: 200, schema: page(user) },
  }),
  createUser: defineRoute({
    id: "users.create",
    method: "POST",
    path: "/api/v1/users",
    tag: "Users",
    summary: "Create a user",
    access: needs("user.write"),
    body: createUser,
    answer: { kind: "json", status: 201, schema: z.object({ user, password: z.string().nullable() }) },
    idempotent: true,
    errors: ["email-in-use", "not-permitted"],
  }),
  getUser: defineRoute({
    id: "users.get",
    method: "GET",
    path: "/api/v1/users/{user}",
    tag: "Users",
    summary: "Show a user",
    access: needs("user.read"),
    params: userParam,
    answer: { kind: "json", status: 200, schema: user },
  }),
  updateUser: defineRoute({
    id: "users.update",
    method: "PATCH",
    path: "/api/v1/users/{user}",
    tag: "Users",
    summary: "Change a user; `active: false` ends all that the user holds open",
    access: needs("user.write"),
    params: userParam,
    body: updateUser,
    answer: { kind: "json", status: 200, schema: user },
    errors: ["last-superadmin", "not-permitted"],
  }),
  unlockUser: defineRoute({
    id: "users.unlock",
    method: "POST",
    path: "/api/v1/users/{user}/unlock",
    tag: "Users",
    summary: "Forget failed sign-ins, for every address",
    access: needs("user.write"),
    params: userParam,
    answer: { kind: "json", status: 200, schema: z.object({ unlocked: z.int() }) },
  }),
  resetPassword: defineRoute({
    id: "users.reset-password",
    method: "POST",
    path: "/api/v1/users/{user}/password",
    tag: "Users",
    summary: "Set a new password; without one a random one is made and returned once",
    access: needs("user.write"),
    params: userParam,
    body: z.strictObject({ password: password.optional() }),
    answer: { kind: "json", status: 200, schema: z.object({ password: z.string().nullable() }) },
  }),
  listTokens: defineRoute({
    id: "tokens.list",
    method: "GET",
    path: "/api/v1/tokens",
    tag: "Tokens",
    summary: "List one's own API tokens",
    access: needs("token.own"),
    query: z.strictObject(pageQuery),
    answer: { kind: "json", status: 200, schema: page(token) },
  }),
  createToken: defineRoute({
    id: "tokens.create",
    method: "POST",
    path: "/api/v1/tokens",
    tag: "Tokens",
    summary: "Create an API token; its text is shown once",
    access: needs("token.own"),
    body: z.strictObject({
      name: label,
      ttl: durationInput.optional().meta({ description: "Time until it ends; none means 90 days" }),
    }),
    answer: { kind: "json", status: 201, schema: z.object({ token, secret: z.string() }) },
    errors: ["name-in-use"],
  }),
  deleteToken: defineRoute({
    id: "tokens.delete",
    method: "DELETE",
    path: "/api/v1/tokens/{token}",
    tag: "Tokens",
    summary: "End an API token",
    access: needs("token.own"),
    params: z.object({ token: z.string().max(100).meta({ description: "Token id or name" }) }),
    answer: { kind: "empty", status: 204 },
  }),
};
