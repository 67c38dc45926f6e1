import type { Access } from "../../contract/route.ts";
import { BerthError } from "../../kit/errors.ts";
import { LOCAL_ROOT, mustMay, type Principal, type UserPrincipal } from "../accounts/principal.ts";
import type { Client } from "./client.ts";
import { readSessionCookie } from "./cookies.ts";

/** Turns a presented secret into the person. Throws `not-signed-in`, `token-ended` or `account-inactive`. */
export type Authenticate = (secret: string) => Promise<UserPrincipal>;

/** What access is decided on; nothing else of the request is looked at before. */
export type Credentials = {
  /** `local`: the admin socket, which the file system opens to root alone. */
  readonly via: "network" | "local";
  readonly client: Client;
  readonly authorization: string | undefined;
  readonly cookie: string | undefined;
  readonly origin: string | undefined;
  /** Whether the request changes something or opens a WebSocket. */
  readonly sensitive: boolean;
};

export type Gate = {
  /** The person behind the request, who has the right that the route needs. Throws 401 and 403 errors. */
  admit(access: Exclude<Access, { kind: "public" }>, credentials: Credentials): Promise<Principal>;
  /** Keeps other sites from signing a browser in or out through a public route. */
  admitAnybody(credentials: Credentials): void;
};

const notSignedIn = () =>
  new BerthError(
    "not-signed-in",
    "Sign in first (berth login URL), or send a token: Authorization: Bearer …",
  );

function bearerOf(authorization: string): string {
  const match = /^Bearer ([\x21-\x7e]{1,500})$/i.exec(authorization);
  if (match?.[1] === undefined) throw notSignedIn();
  return match[1];
}

/**
 * Decides who may pass. A cookie counts only for GET or with exactly our Origin, port included; a token in a header
 * needs no Origin, because no other site can set it.
 */
export function createGate(options: {
  readonly authenticate: Authenticate;
  /** Where people reach us, when it differs from what they name in `Host`. */
  readonly publicOrigin: string | undefined;
}): Gate {
  const { authenticate, publicOrigin } = options;

  function isOurs(origin: string | undefined, { secure, host }: Client): boolean {
    if (origin === undefined || host === "") return false;
    return origin === publicOrigin || origin === `${secure ? "https" : "http"}://${host}`;
  }

  const wrongOrigin = () =>
    new BerthError(
      "wrong-origin",
      "This request comes from another site or port than this manager's; with a cookie that is refused.",
    );

  async function identify(credentials: Credentials): Promise<Principal> {
    const { via, client, authorization, cookie, origin, sensitive } = credentials;
    if (authorization !== undefined) return authenticate(bearerOf(authorization));
    if (via === "local") return LOCAL_ROOT;
    const secret = readSessionCookie(cookie, client.secure);
    if (secret === undefined) throw notSignedIn();
    if (sensitive && !isOurs(origin, client)) throw wrongOrigin();
    return authenticate(secret);
  }

  return {
    admit: async (access, credentials) => {
      const principal = await identify(credentials);
      if (access.kind === "permission") mustMay(principal, access.permission);
      return principal;
    },
    admitAnybody: ({ sensitive, origin, client }) => {
      if (sensitive && origin !== undefined && !isOurs(origin, client)) throw wrongOrigin();
    },
  };
}
