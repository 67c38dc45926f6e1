/** What a reader gets. A gap is output that is not kept any more (or could not be stored). */
export type LogEvent =
  | { readonly kind: "output"; readonly offset: number; readonly stream: 1 | 2; readonly bytes: Buffer }
  | { readonly kind: "gap"; readonly offset: number; readonly droppedBytes: number }
  | { readonly kind: "end"; readonly offset: number; readonly final: boolean };
