const NAME = "berth_session";

/** `__Host-` makes browsers refuse the cookie from any other host and without TLS. */
const nameFor = (secure: boolean) => (secure ? `__Host-${NAME}` : NAME);

/** The secret in our cookie, or undefined. */
export function readSessionCookie(header: string | undefined, secure: boolean): string | undefined {
  const name = nameFor(secure);
  for (const part of (header ?? "").split(";")) {
    const at = part.indexOf("=");
    if (at > 0 && part.slice(0, at).trim() === name) return part.slice(at + 1).trim() || undefined;
  }
  return undefined;
}

/** The `Set-Cookie` that keeps a login for `maxAgeSeconds`. */
export function sessionCookie(secret: string, secure: boolean, maxAgeSeconds: number): string {
  const attributes = `Path=/; HttpOnly; SameSite=Strict${secure ? "; Secure" : ""}; Max-Age=${maxAgeSeconds}`;
  return `${nameFor(secure)}=${secret}; ${attributes}`;
}

/** The `Set-Cookie` that ends it. */
export function endedCookie(secure: boolean): string {
  return sessionCookie("", secure, 0);
}
