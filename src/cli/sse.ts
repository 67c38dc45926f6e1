/** One message of a stream of server-sent events. */
export type SseMessage = { readonly id: string | undefined; readonly event: string; readonly data: string };

/** Puts messages together from bytes split anywhere (WHATWG HTML, "event stream interpretation"). */
export function createSseReader(): (chunk: Uint8Array) => SseMessage[] {
  const decoder = new TextDecoder();
  let held = "";
  let data: string[] = [];
  let event = "message";
  let id: string | undefined;

  const take = (line: string): SseMessage | undefined => {
    if (line === "") {
      const message = data.length === 0 ? undefined : { id, event, data: data.join("\n") };
      data = [];
      event = "message";
      return message;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") data.push(value);
    else if (field === "event") event = value;
    else if (field === "id") id = value;
    return undefined;
  };
  return (chunk) => {
    held += decoder.decode(chunk, { stream: true });
    const lines = held.split(/\r\n|\n|\r(?!$)/);
    held = lines.pop() ?? "";
    return lines.flatMap((line) => take(line) ?? []);
  };
}
