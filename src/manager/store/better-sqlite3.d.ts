/** What we use of better-sqlite3, which ships no types. */
declare module "better-sqlite3/linux-x64" {
  type Statement = {
    readonly reader: boolean;
    all(parameters?: readonly unknown[]): unknown[];
    run(parameters?: readonly unknown[]): { changes: number; lastInsertRowid: number | bigint };
    iterate(parameters?: readonly unknown[]): IterableIterator<unknown>;
  };
  export default class Sqlite {
    constructor(path: string, options?: { readonly?: boolean; fileMustExist?: boolean; timeout?: number });
    readonly inTransaction: boolean;
    prepare(sql: string): Statement;
    exec(sql: string): void;
    pragma(text: string, options: { simple: true }): unknown;
    close(): void;
  }
}
