import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { writeFileAtomic } from "../../kit/atomic-file.ts";
import type { Clock } from "../../kit/clock.ts";
import { newId, type UserId } from "../../kit/ids.ts";
import type { Policies } from "../policies/service.ts";
import type { Store } from "../store/store.ts";
import { type Passwords, randomPassword } from "./passwords.ts";
import { countUsers, insertUser } from "./repository.ts";

export const FIRST_ADMIN_EMAIL = "admin@berth.local";
export const FIRST_ADMIN_FILE = "initial-admin.json";

const content = z.object({ url: z.string(), email: z.string(), password: z.string() });
export type FirstAdmin = z.infer<typeof content>;

const write = (dataDir: string, admin: FirstAdmin) =>
  writeFileAtomic(join(dataDir, FIRST_ADMIN_FILE), `${JSON.stringify(admin, null, 2)}\n`);

/**
 * On the first start makes the superadmin and returns the password, undefined on every later one. The file with the
 * password is on disk before the account exists, so that no crash leaves an account whose password nobody knows.
 */
export async function ensureFirstAdmin(deps: {
  readonly store: Store;
  readonly clock: Clock;
  readonly passwords: Passwords;
  readonly policies: Policies;
  readonly dataDir: string;
  readonly url: string;
}): Promise<FirstAdmin | undefined> {
  const { store, clock, passwords, policies, dataDir, url } = deps;
  if ((await store.read(countUsers)) > 0) return undefined;
  const admin = { url, email: FIRST_ADMIN_EMAIL, password: randomPassword() };
  const hash = await passwords.hash(admin.password);
  await write(dataDir, admin);
  await store.write(async (tx) =>
    insertUser(tx, {
      id: newId<UserId>(clock),
      email: admin.email,
      name: "Administrator",
      role: "superadmin",
      active: 1,
      password_hash: hash,
      uid: 1000,
      gid: 1000,
      policy_id: await policies.defaultId(tx),
      created_at: clock.wall(),
      last_login_at: null,
    }),
  );
  return admin;
}

/** Corrects the address in the file, where the file is still there. */
export async function updateFirstAdminUrl(dataDir: string, url: string): Promise<void> {
  const text = await readFile(join(dataDir, FIRST_ADMIN_FILE), "utf8").catch(() => undefined);
  if (text === undefined) return;
  const parsed = content.safeParse(JSON.parse(text));
  if (parsed.success && parsed.data.url !== url) await write(dataDir, { ...parsed.data, url });
}
