export type SkewVerdict =
  | { readonly ok: true }
  | { readonly ok: false; readonly code: string; readonly sentence: string };

type Version = { readonly major: number; readonly minor: number };

function parse(text: string): Version | undefined {
  const match = /^v?(\d+)\.(\d+)\.(\d+)(?:[-+].*)?$/.exec(text);
  return match === null ? undefined : { major: Number(match[1]), minor: Number(match[2]) };
}

/**
 * Whether a manager serves an agent of that version: the same minor version, or one older. Both are
 * semantic versions (`0.3.1`, `0.3.1-rc.2`); the patch does not matter. A refusal's sentence names both
 * and says which one to upgrade; the agent leaves its containers alone.
 */
export function checkSkew(managerVersion: string, agentVersion: string): SkewVerdict {
  const manager = parse(managerVersion);
  const agent = parse(agentVersion);
  if (manager === undefined || agent === undefined) {
    const sentence = `The agent's version "${agentVersion}" cannot be compared with the manager's "${managerVersion}".`;
    return { ok: false, code: "version-unreadable", sentence };
  }
  const ahead = agent.major - manager.major || agent.minor - manager.minor;
  if (ahead > 0) {
    const sentence =
      `The agent is version ${agentVersion} and the manager ${managerVersion}: ` +
      "a manager serves no newer agent. Upgrade the manager first.";
    return { ok: false, code: "agent-too-new", sentence };
  }
  if (agent.major !== manager.major || ahead < -1) {
    const sentence =
      `The agent is version ${agentVersion} and the manager ${managerVersion}: ` +
      "a manager serves agents at most one minor version older. Upgrade the agent.";
    return { ok: false, code: "agent-too-old", sentence };
  }
  return { ok: true };
}
