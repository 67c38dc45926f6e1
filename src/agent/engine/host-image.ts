import { createHash } from "node:crypto";
import { lstatSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { MountSettings } from "dockerode";
import { BerthError } from "../../kit/errors.ts";
import { makeTar, type TarEntry } from "./archive.ts";
import { type EngineClient, hasStatus, LONG_CALL_MS } from "./client.ts";
import { type MountPoint, mountsBelow, readMounts } from "./mounts.ts";
import { LABEL } from "./names.ts";
import { jsonLines } from "./output.ts";

/** Name under which users know the built-in image. */
export const HOST_IMAGE = "host";

const REPOSITORY = "berth/host";

/**
 * What a program under /usr may need from /etc. Only things that every user of the node can read anyway, and
 * nothing that holds accounts, keys or the node's own configuration.
 */
const ETC_ALLOWED = [
  /^alternatives$/,
  /^ld\.so\.(cache|conf|conf\.d)$/,
  /^ca-certificates(\.conf)?$/,
  /^java(-[\w.-]+)?$/,
  /^maven$/,
  /^(python|perl|ruby|lua|php)[\d.]*$/,
  /^(ipython|jupyter|R|octave|julia|OpenCL|vulkan|glvnd|fonts|terminfo|texmf|groff|X11)$/,
  /^(localtime|timezone|mime\.types|services|protocols|rpc|locale\.alias|inputrc|bash\.bashrc|profile)$/,
  /^(lmod|modulefiles|environment-modules|openmpi|mpich|libibverbs\.d|magic|magic\.mime)$/,
];

/** Of /etc/ssl all but the folder of private keys. */
const SSL_ALLOWED = ["certs", "openssl.cnf"];

const MOST_SUBMOUNTS = 64;

const ACCOUNTS: readonly TarEntry[] = [
  {
    name: "etc/passwd",
    mode: 0o644,
    text: "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
  },
  { name: "etc/group", mode: 0o644, text: "root:x:0:\ntty:x:5:\nusers:x:100:\nnogroup:x:65534:\n" },
  {
    name: "etc/nsswitch.conf",
    mode: 0o644,
    text: "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n",
  },
];

const folder = (name: string, mode = 0o755): TarEntry => ({ name, mode });

/** The account files that the image is made with, so that they need not be read out of a container. */
export const HOST_ACCOUNTS = { passwd: ACCOUNTS[0]?.text ?? "", group: ACCOUNTS[1]?.text ?? "" };

/**
 * Contents of the image: folders, accounts, and the links by which a merged system reaches /usr. `sbin` is a
 * folder, since the engine mounts its init there.
 */
export function hostImageEntries(links: readonly string[]): TarEntry[] {
  const folders = [
    "dev",
    "etc",
    "etc/ssl",
    "home",
    "opt",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
    "var",
    "var/lib",
  ];
  return [
    ...folders.map((name) => folder(name)),
    folder("root", 0o700),
    folder("tmp", 0o1777),
    folder("var/tmp", 0o1777),
    ...links.map((name) => ({ name, mode: 0o777, link: `usr/${name}` })),
    { name: "etc/mtab", mode: 0o777, link: "../proc/self/mounts" },
    ...ACCOUNTS,
  ];
}

/** Top-level names that are links into /usr on this node, such as bin and lib64; `root` is for tests. */
export function usrLinks(root = "/"): string[] {
  return ["bin", "lib", "lib32", "lib64", "libx32"].filter((name) => {
    try {
      return readlinkSync(join(root, name)).replace(/^\//, "") === `usr/${name}`;
    } catch {
      return false;
    }
  });
}

/** Whether this node can offer the environment: /bin and /lib must be links into /usr. */
export function offersHost(root = "/"): boolean {
  const links = usrLinks(root);
  return links.includes("bin") && links.includes("lib") && exists(join(root, "usr/bin/sh"));
}

function exists(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

// A constant, since dockerode's types do not know NonRecursive.
const WITHOUT_SUBMOUNTS = { Propagation: "rprivate", NonRecursive: true } as const;

/** A read-only bind of a path to itself, without anything that is mounted below it. */
const readOnly = (path: string): MountSettings => ({
  Type: "bind",
  Source: path,
  Target: path,
  ReadOnly: true,
  BindOptions: WITHOUT_SUBMOUNTS,
});

/**
 * The node's own programs, read-only. What is mounted below a bound folder would stay writable inside it, so folders
 * are bound without their mounts, and each of those is bound read-only by itself.
 */
export function hostMounts(etcNames: readonly string[], mounts: readonly MountPoint[]): MountSettings[] {
  const etc = etcNames.filter((name) => ETC_ALLOWED.some((allowed) => allowed.test(name)));
  const paths = [
    "/usr",
    "/opt",
    ...etc.map((name) => `/etc/${name}`),
    ...SSL_ALLOWED.map((n) => `/etc/ssl/${n}`),
  ];
  const submounts = paths.flatMap((path) => mountsBelow(path, mounts));
  if (submounts.length > MOST_SUBMOUNTS) {
    throw new BerthError(
      "engine-refused",
      `This node has ${submounts.length} file systems mounted below /usr, /opt and /etc; the host environment takes ` +
        `${MOST_SUBMOUNTS} at most.`,
    );
  }
  return [...paths, ...submounts].filter(isSafeSource).map(readOnly);
}

/** A file or folder that exists and that others than root may read. */
function isSafeSource(path: string): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined || lstatSync(path).isSocket()) return false;
  return (found.isFile() || found.isDirectory()) && (found.mode & 0o004) !== 0;
}

/**
 * Whether a local image is one that this module imported. Its label alone proves nothing: anybody's image may carry it.
 */
export function isHostImage(image: {
  readonly Labels: Readonly<Record<string, string>> | null | undefined;
  readonly RepoTags: readonly string[] | null | undefined;
  readonly RepoDigests?: readonly string[] | null | undefined;
}): boolean {
  const real = (names: readonly string[] | null | undefined) =>
    (names ?? []).filter((name) => !name.includes("<none>"));
  const ours = real(image.RepoTags).every((tag) => tag.startsWith(`${REPOSITORY}:`));
  return image.Labels?.[LABEL.builtin] === HOST_IMAGE && ours && real(image.RepoDigests).length === 0;
}

export interface HostImage {
  /** Imports the image unless the engine has it; returns its reference. */
  ensure(): Promise<string>;
  /** Removes it and its other versions, unless a container still uses them. */
  remove(): Promise<void>;
}

export function createHostImage({ client }: { readonly client: EngineClient }): HostImage {
  async function content(): Promise<{ reference: string; tar: Buffer }> {
    const tar = await makeTar(hostImageEntries(usrLinks()));
    return { reference: `${REPOSITORY}:${createHash("sha256").update(tar).digest("hex").slice(0, 16)}`, tar };
  }

  async function isThere(reference: string): Promise<boolean> {
    try {
      await client.call("inspect image", (docker) => docker.getImage(reference).inspect());
      return true;
    } catch (error) {
      if (hasStatus(error, 404)) return false;
      throw error;
    }
  }

  async function importTar(reference: string, tar: Buffer): Promise<void> {
    const [repo, tag] = reference.split(":");
    const changes = `LABEL ${LABEL.builtin}=${HOST_IMAGE}`;
    await client.call(
      "import the host image",
      async (docker) => {
        const answer = await docker.importImage(Readable.from([tar]), { repo, tag, changes });
        for await (const line of jsonLines(answer)) {
          if (typeof line === "object" && line !== null && "error" in line)
            throw new Error(String(line.error));
        }
      },
      LONG_CALL_MS,
    );
  }

  /** Removes what the platform imported, but for `keep`: versions before an upgrade, and losers of a race. */
  async function removeOthers(keep: string | undefined): Promise<void> {
    const filters = { label: [`${LABEL.builtin}=${HOST_IMAGE}`] };
    const all = await client.call("list images", (docker) => docker.listImages({ filters }));
    for (const { Id, RepoTags } of all.filter(isHostImage)) {
      if (keep !== undefined && (RepoTags ?? []).includes(keep)) continue;
      await client
        .call("remove image", (docker) => docker.getImage(Id).remove())
        .catch((error: unknown) => {
          // Sessions still use it, or another agent of this engine was quicker.
          if (!hasStatus(error, 404) && !hasStatus(error, 409)) throw error;
        });
    }
  }

  async function make(): Promise<string> {
    if (!offersHost()) {
      throw new BerthError(
        "image-missing",
        "This node does not offer the host environment: its /bin and /lib are not links into /usr.",
      );
    }
    const { reference, tar } = await content();
    if (await isThere(reference)) return reference;
    await importTar(reference, tar);
    await removeOthers(reference);
    return reference;
  }

  let making: Promise<string> | undefined;

  return {
    ensure: () => {
      making ??= make().finally(() => {
        making = undefined;
      });
      return making;
    },
    remove: () => removeOthers(undefined),
  };
}

/** The mounts of a session of the host environment, as the node is now. */
export function currentHostMounts(etcNames: readonly string[]): MountSettings[] {
  return hostMounts(etcNames, readMounts());
}
