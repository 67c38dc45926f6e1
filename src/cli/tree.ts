import { completionCommand } from "./completion.ts";
import { type ConfigCheck, configFamily } from "./config.ts";
import { eventsCommand } from "./events.ts";
import { attachCommand, execCommand } from "./exec.ts";
import { groupFamily } from "./groups.ts";
import { imageFamily } from "./images.ts";
import { loginCommands } from "./login.ts";
import { logsCommand } from "./logs.ts";
import { completeCommand } from "./names.ts";
import { nodeFamily } from "./nodes.ts";
import { policyFamily } from "./policies.ts";
import type { Tree } from "./program.ts";
import { runCommand } from "./run.ts";
import { sessionCommands } from "./sessions.ts";
import { startCommand } from "./start.ts";
import { joinTokenFamily, tokenFamily } from "./tokens.ts";
import { userFamily } from "./users.ts";
import { versionCommand } from "./version.ts";

/** What the executable adds from parts that the client does not know. */
export type Extras = {
  /** Checks of the roles' configurations, by role. */
  readonly configChecks?: Readonly<Record<string, ConfigCheck>>;
};

/** Every command of the client. */
export function treeOf(extras: Extras = {}): Tree {
  const tree: Tree = {
    commands: [
      runCommand,
      startCommand,
      ...sessionCommands,
      logsCommand,
      execCommand,
      attachCommand,
      eventsCommand,
      ...loginCommands,
      versionCommand,
      completionCommand(() => tree),
      completeCommand,
    ],
    families: [
      imageFamily,
      nodeFamily,
      groupFamily,
      userFamily,
      tokenFamily,
      joinTokenFamily,
      policyFamily,
      configFamily(extras.configChecks ?? {}),
    ],
  };
  return tree;
}
