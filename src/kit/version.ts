import { version } from "../../package.json";

// Put in by build.ts; absent when the sources are run as they are.
declare const BERTH_COMMIT: string | undefined;

/** The version of this program, as in package.json. */
export const VERSION: string = version;

/** The git commit it was built from; `unknown` where that cannot be told. */
export const COMMIT: string = typeof BERTH_COMMIT === "string" ? BERTH_COMMIT : "unknown";
