import { api } from "../contract/api.ts";
import { COMMIT, VERSION } from "../kit/version.ts";
import type { CommandSpec, Invocation } from "./command.ts";
import { hasTarget } from "./target.ts";

const ASK_MS = 3000;

async function managerVersion(invocation: Invocation) {
  if (invocation.options.flag("client") || !hasTarget(invocation.io)) return null;
  try {
    const client = await invocation.client();
    const signal = AbortSignal.timeout(ASK_MS);
    const answer = await client.call(api.system.version, {}, { attempts: 1, signal });
    return { ...answer, url: client.target.socket ?? client.target.url };
  } catch {
    // The version of this program is known whether or not a manager answers.
    return null;
  }
}

async function version(invocation: Invocation): Promise<undefined> {
  const { json, show } = invocation;
  const manager = await managerVersion(invocation);
  if (json) return void (await show.json({ version: VERSION, commit: COMMIT, manager }));
  await show.line(`berth ${VERSION} (${COMMIT})`);
  if (manager !== null) await show.line(`manager ${manager.version} (${manager.commit}) at ${manager.url}`);
  return undefined;
}

export const versionCommand: CommandSpec = {
  usage: "version",
  summary: "Print the version of this program and of the manager",
  options: [{ flags: "--client", help: "do not ask the manager" }],
  examples: ["berth version --json"],
  run: version,
};
