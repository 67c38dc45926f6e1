import { accountRoutes as routes } from "../../contract/accounts.ts";
import { endedCookie, sessionCookie } from "../http/cookies.ts";
import { handle, handlePublic, type Mounted } from "../http/handle.ts";
import { LOGIN_MS, type Logins } from "./logins.ts";
import { ownerOf } from "./principal.ts";
import type { Tokens } from "./tokens.ts";
import type { Users } from "./users.ts";

export function accountApi(services: {
  readonly users: Users;
  readonly logins: Logins;
  readonly tokens: Tokens;
}): readonly Mounted[] {
  const { users, logins, tokens } = services;
  return [
    handlePublic(routes.login, async ({ body, address, secure, setHeader }) => {
      const { secret, me } = await logins.login({ ...body, address });
      setHeader("set-cookie", sessionCookie(secret, secure, LOGIN_MS / 1000));
      return me;
    }),
    handle(routes.logout, async ({ principal, secure, setHeader }) => {
      if (principal.kind === "local") return;
      await logins.logout(principal);
      setHeader("set-cookie", endedCookie(secure));
    }),
    handle(routes.me, ({ principal }) => logins.me(ownerOf(principal))),
    handle(routes.changePassword, ({ principal, body }) =>
      logins.changePassword(ownerOf(principal), body.current, body.next),
    ),

    handle(routes.listUsers, ({ query }) => users.list(query)),
    handle(routes.createUser, ({ body, principal }) => users.create(body, principal)),
    handle(routes.getUser, ({ params }) => users.get(params.user)),
    handle(routes.updateUser, ({ params, body, principal }) => users.update(params.user, body, principal)),
    handle(routes.unlockUser, async ({ params, principal }) => ({
      unlocked: await users.unlock(params.user, principal),
    })),
    handle(routes.resetPassword, ({ params, body, principal }) =>
      users.resetPassword(params.user, body.password, principal),
    ),

    handle(routes.listTokens, ({ principal, query }) => tokens.list(ownerOf(principal), query)),
    handle(routes.createToken, ({ principal, body }) =>
      tokens.create(ownerOf(principal), body.name, body.ttl),
    ),
    handle(routes.deleteToken, ({ principal, params }) => tokens.end(ownerOf(principal), params.token)),
  ];
}
