import { type Me, me } from "../contract/accounts.ts";
import { api } from "../contract/api.ts";
import { BerthError, messageOf } from "../kit/errors.ts";
import { createClient } from "./client.ts";
import { argument, type CommandSpec, type Invocation } from "./command.ts";
import {
  type Credentials,
  credentialsPath,
  readCredentials,
  removeCredentials,
  writeCredentials,
} from "./credentials.ts";
import { ApiError, isTransient } from "./failures.ts";
import { connectionFault, parseOrNull, problemOf } from "./faults.ts";
import { ask, readPassword } from "./prompt.ts";
import { originOf, trustByFile, trustByFingerprint } from "./target.ts";
import { fingerprintMatches, fingerprintOf, probeCertificate, type Trust, tlsOptions } from "./tls.ts";

/** Decides how the certificate of this address is judged from now on; asks a person where it must. */
async function decideTrust(invocation: Invocation, url: string): Promise<Trust> {
  const { io, options } = invocation;
  if (!url.startsWith("https:")) {
    const { hostname } = new URL(url);
    const local = ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
    if (!local) await io.err(`berth: the connection to ${url} is not encrypted\n`);
    return { kind: "system" };
  }
  const fingerprint = options.text("fingerprint") ?? io.env.BERTH_FINGERPRINT;
  if (fingerprint) return trustByFingerprint(url, fingerprint);
  const caFile = options.text("ca") ?? io.env.BERTH_CA;
  if (caFile) return trustByFile(caFile);
  const probe = await probeCertificate(url);
  if (probe.trusted) return { kind: "system" };
  const kept = readCredentials(credentialsPath(io.env));
  const known = kept?.url === url && kept.trust.kind === "pinned" ? kept.trust.pem : undefined;
  const shown = fingerprintOf(probe.pem);
  if (known !== undefined && fingerprintMatches(probe.pem, fingerprintOf(known))) {
    return { kind: "pinned", pem: probe.pem };
  }
  if (!io.stdinTty || !io.stderrTty) {
    throw new BerthError(
      "certificate-not-trusted",
      `The certificate of ${url} is not trusted by this machine. Its SHA-256 fingerprint is ${shown}; ` +
        "if that is the manager's, give it with --fingerprint.",
      { details: { fingerprint: shown } },
    );
  }
  if (known !== undefined) await io.err(`The certificate of ${url} is another one than before!\n`);
  await io.err(
    `The certificate of ${url} is not trusted by this machine. Its SHA-256 fingerprint is\n  ${shown}\n`,
  );
  const answer = await ask(io, "Is this the manager's, and shall it be trusted from now on? [y/N] ");
  if (!/^y(es)?$/i.test(answer.trim())) throw new BerthError("certificate-not-trusted", "Not signed in.");
  return trustByFingerprint(url, shown);
}

type SignedIn = { readonly me: Me; readonly token: string; readonly tokenId: string };

/** Signs in with the password and makes an API token, with which everything later is done. */
async function signIn(
  url: string,
  trust: Trust,
  credentials: { readonly email: string; readonly password: string; readonly tokenName: string },
): Promise<SignedIn> {
  const post = async (path: string, body: unknown, headers: Readonly<Record<string, string>> = {}) => {
    const response = await fetch(url + path, {
      method: "POST",
      headers: { "content-type": "application/json", origin: url, ...headers },
      body: JSON.stringify(body),
      tls: tlsOptions(trust),
      proxy: false,
      redirect: "manual",
      signal: AbortSignal.timeout(30_000),
    }).catch((error: unknown) => {
      throw connectionFault({ url, trust }, error);
    });
    const text = await response.text();
    if (response.ok) return { text, cookies: response.headers.getSetCookie() };
    throw new ApiError(problemOf(response.status, text, response.headers.get("x-request-id")));
  };
  const { email, password, tokenName } = credentials;
  const login = await post(api.accounts.login.path, { email, password });
  const cookie = login.cookies.map((entry) => entry.split(";", 1)[0]).join("; ");
  const made = await post(api.accounts.createToken.path, { name: tokenName }, { cookie });
  const { answer } = api.accounts.createToken;
  if (answer.kind !== "json") throw new TypeError("tokens.create does not answer with JSON");
  const { token, secret } = answer.schema.parse(parseOrNull(made.text));
  await post(api.accounts.logout.path, {}, { cookie }).catch(() => {});
  return { me: me.parse(parseOrNull(login.text)), token: secret, tokenId: token.id };
}

function tokenName(io: Invocation["io"], now: number): string {
  const at = new Date(now).toISOString().slice(0, 19).replace("T", " ");
  // Names of tokens are unique, and two people's scripts may sign in within a second.
  const mark = crypto.randomUUID().slice(0, 6);
  return `berth on ${io.hostname.slice(0, 60)}, ${at} (${mark})`;
}

async function endOldToken(invocation: Invocation, old: Credentials): Promise<void> {
  if (old.tokenId === undefined) return;
  const client = createClient({ target: old, clock: invocation.clock });
  await client.send(api.accounts.deleteToken, { params: { token: old.tokenId } }, { attempts: 1 });
}

async function login(invocation: Invocation): Promise<undefined> {
  const { io, options, json, show, clock } = invocation;
  const url = originOf(argument(invocation));
  const trust = await decideTrust(invocation, url);
  const email = options.text("email") ?? (await ask(io, "E-mail: ")).trim();
  const password = await readPassword(io, options.flag("password-stdin"), `Password of ${email}: `);
  const path = credentialsPath(io.env);
  const old = readCredentials(path);
  const signedIn = await signIn(url, trust, { email, password, tokenName: tokenName(io, clock.wall()) });
  const { user } = signedIn.me;
  writeCredentials(path, { url, token: signedIn.token, tokenId: signedIn.tokenId, email: user.email, trust });
  if (old !== undefined && old.url === url) await endOldToken(invocation, old).catch(() => {});
  await (json ? show.json(signedIn.me) : show.line(`Signed in at ${url} as ${user.email} (${user.role}).`));
  return undefined;
}

async function logout(invocation: Invocation): Promise<undefined> {
  const { io, json, show, clock } = invocation;
  const path = credentialsPath(io.env);
  const kept = readCredentials(path);
  if (kept === undefined) {
    await (json ? show.json({ signedOut: false }) : show.note("Not signed in."));
    return undefined;
  }
  removeCredentials(path);
  const client = createClient({ target: kept, clock });
  await client.send(api.accounts.logout, {}, { attempts: 2 }).catch(async (error: unknown) => {
    const gone = error instanceof ApiError && error.problem.status === 401;
    if (gone) return;
    const why = isTransient(error) ? "the manager does not answer" : messageOf(error);
    await show.note(`berth: the token could not be ended at ${kept.url} (${why}); it is forgotten here`);
  });
  await (json ? show.json({ signedOut: true }) : show.line(`Signed out of ${kept.url}.`));
  return undefined;
}

async function whoami(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const client = await invocation.client();
  const answer = await client.call(api.accounts.me);
  if (json) return void (await show.json(answer));
  const { user, permissions, expiresAt } = answer;
  await show.facts([
    ["E-mail", user.email],
    ["Name", user.name],
    ["Role", user.role],
    ["Policy", user.policy],
    ["Manager", client.target.socket ?? client.target.url],
    ["Token ends", expiresAt && show.when(expiresAt)],
    ["Rights", permissions.join(", ")],
  ]);
  return undefined;
}

export const loginCommands: readonly CommandSpec[] = [
  {
    usage: "login <url>",
    summary: "Sign in at a manager and keep a token for it",
    options: [
      { flags: "--email <e-mail>", help: "whom to sign in as" },
      { flags: "--password-stdin", help: "read the password from stdin" },
      { flags: "--fingerprint <sha256>", help: "trust the certificate that has this fingerprint" },
      { flags: "--ca <file>", help: "trust certificates of this authority (PEM)", completes: "files" },
    ],
    examples: [
      "berth login https://lab.example:7410",
      "berth login https://lab.example:7410 --email me@lab.example --password-stdin < password",
    ],
    run: login,
  },
  {
    usage: "logout",
    summary: "End the token that login made, and forget it",
    examples: ["berth logout"],
    run: logout,
  },
  {
    usage: "whoami",
    summary: "Show who is signed in, and where",
    examples: ["berth whoami --json"],
    run: whoami,
  },
];
