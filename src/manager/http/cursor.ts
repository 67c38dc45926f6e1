import { z } from "zod";
import { BerthError } from "../../kit/errors.ts";

/** The sort key of the last row of a page, ending with something unique (a sequence number or an id). */
export type CursorKey = readonly (string | number | null)[];

const shape = z.tuple([z.string(), z.array(z.union([z.string(), z.number(), z.null()])).max(4)]);

/** An opaque text that leads to the rows after `key` in one list and one order, both named by `scope`. */
export function formatCursor(scope: string, key: CursorKey): string {
  return Buffer.from(JSON.stringify([scope, key])).toString("base64url");
}

/**
 * The key inside a cursor. Throws `invalid-cursor` for one that was damaged or belongs to another list or order; its
 * values are checked for nothing else and go into queries as bound values only.
 */
export function parseCursor(scope: string, text: string, length: number): CursorKey {
  try {
    const [from, key] = shape.parse(JSON.parse(Buffer.from(text, "base64url").toString("utf8")));
    if (from === scope && key.length === length) return key;
  } catch {
    // Told below, as for a cursor of another list.
  }
  throw new BerthError(
    "invalid-cursor",
    "The cursor does not belong to this list: start again without one.",
    {
      field: "cursor",
    },
  );
}

/** Cuts `limit + 1` fetched rows to a page, with the cursor of the next one when there is more. */
export function pageOf<Row, Item>(
  rows: readonly Row[],
  limit: number,
  scope: string,
  keyOf: (row: Row) => CursorKey,
  itemOf: (row: Row) => Item,
): { readonly items: Item[]; readonly next: string | null } {
  const kept = rows.slice(0, limit);
  const last = kept.at(-1);
  const more = rows.length > limit && last !== undefined;
  return { items: kept.map(itemOf), next: more ? formatCursor(scope, keyOf(last)) : null };
}
