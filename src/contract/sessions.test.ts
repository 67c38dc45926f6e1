import { expect, test } from "bun:test";
import { createSession } from "./sessions.ts";

test("a variable that no object can hold is refused, not dropped", () => {
  const parse = (text: string) => createSession.safeParse(JSON.parse(text));
  const refused = parse('{"environment":{"A":"1","__proto__":"x"}}');
  expect(refused.error?.issues.map(({ path, message }) => [path.join("."), message])).toEqual([
    ["environment", "No environment variable can be named `__proto__`."],
  ]);
  expect(parse('{"environment":{"A":"1","constructor":"x"}}').data?.environment).toEqual({
    A: "1",
    constructor: "x",
  });
  expect(parse("{}").data?.environment).toEqual({});
  for (const wrong of ["null", "3", '"x"', "[]"])
    expect(parse(`{"environment":${wrong}}`).success).toBe(false);
});
