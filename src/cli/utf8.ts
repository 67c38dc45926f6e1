/** The text of these bytes, without a byte order mark; undefined where they are no UTF-8. */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

export function isUtf8(bytes: Uint8Array): boolean {
  return decodeUtf8(bytes) !== undefined;
}
