/** A static page or a file of one. */
export type Page = {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | string;
};
