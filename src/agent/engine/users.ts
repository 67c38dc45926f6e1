/** Whom a session's processes run as, and what the image's account files become for it. */
export type UserRequest = {
  readonly uid: number;
  readonly gid: number;
  readonly supplementaryGids: readonly number[];
  /** Login shell when the image has no better idea. */
  readonly shell: string;
};

export type AccountFiles = { readonly passwd: string; readonly group: string };

/** The session user's name and home, in every image. */
export const USER_NAME = "work";
export const USER_HOME = "/home/work";

/** Accounts that had to give way get numbers from here upward: below the range that systemd takes for itself. */
const FIRST_SPARE_ID = 50_000;

type Line = readonly string[];

const parse = (text: string): Line[] =>
  text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => line.split(":"));

const print = (lines: readonly Line[]): string => lines.map((line) => `${line.join(":")}\n`).join("");

const idOf = (line: Line): number => Number(line[2] ?? "");

function spareId(lines: readonly Line[]): number {
  const taken = new Set(lines.map(idOf));
  let id = FIRST_SPARE_ID;
  while (taken.has(id)) id += 1;
  return id;
}

function withId(line: Line, id: number): Line {
  return line.map((part, index) => (index === 2 ? String(id) : part));
}

const members = (line: Line): string[] => (line[3] ?? "").split(",").filter((name) => name !== "");

function withMember(line: Line, name: string): Line {
  const all = members(line);
  return [
    line[0] ?? "",
    line[1] ?? "x",
    line[2] ?? "",
    [...all, ...(all.includes(name) ? [] : [name])].join(","),
  ];
}

/**
 * The image's passwd and group with the session's user `work` merged in. An account `work` of the image takes the
 * asked number; another account that holds the number is renumbered, and `work` joins all its groups, its
 * primary one too, so that what the image made for it stays writable. Root stays root: for uid 0 nothing changes.
 */
export function mergeAccounts(files: AccountFiles, user: UserRequest): AccountFiles {
  if (user.uid === 0) return files;
  const accounts = parse(files.passwd);
  const groups = parse(files.group);
  const mine = accounts.find((line) => line[0] === USER_NAME);
  const clash = accounts.find((line) => idOf(line) === user.uid && line[0] !== USER_NAME);
  const same = mine ?? clash;

  const passwd = accounts
    .filter((line) => line[0] !== USER_NAME)
    .map((line) => (line === clash ? withId(line, spareId(accounts)) : line));
  const shell = same?.[6] !== undefined && /^\/.*sh$/.test(same[6]) ? same[6] : user.shell;
  passwd.push([USER_NAME, "x", String(user.uid), String(user.gid), "", USER_HOME, shell]);

  const formerNames = [mine, clash].flatMap((line) => (line?.[0] === undefined ? [] : [line[0]]));
  const formerGids = [mine, clash].flatMap((line) => (line === undefined ? [] : [Number(line[3])]));
  const wanted = new Set([...user.supplementaryGids, ...formerGids]);
  const joined = withGroupOf(groups, user.gid).map((line) => {
    const inherits = members(line).some((name) => formerNames.includes(name)) || wanted.has(idOf(line));
    // Root's group would hand out more than the image's own user had.
    const grants = idOf(line) !== 0 || user.supplementaryGids.includes(0);
    return inherits && grants && idOf(line) !== user.gid ? withMember(line, USER_NAME) : line;
  });
  const known = new Set(joined.map(idOf));
  const extra = [...new Set(user.supplementaryGids)].filter((gid) => !known.has(gid) && gid !== user.gid);
  const named = extra.map((gid): Line => [`g${gid}`, "x", String(gid), USER_NAME]);
  return { passwd: print(passwd), group: print([...joined, ...named]) };
}

/** The groups with one of number `gid`; a group `work` of another number is given this one. */
function withGroupOf(groups: readonly Line[], gid: number): Line[] {
  if (groups.some((line) => idOf(line) === gid)) return [...groups];
  if (groups.some((line) => line[0] === USER_NAME)) {
    return groups.map((line) => (line[0] === USER_NAME ? withId(line, gid) : line));
  }
  return [...groups, [USER_NAME, "x", String(gid), ""]];
}
