import swaggerCss from "swagger-ui-dist/swagger-ui.css" with { type: "file" };
import swaggerJs from "swagger-ui-dist/swagger-ui-bundle.js" with { type: "file" };
import { VERSION } from "../../kit/version.ts";
import docsHtml from "./static/docs.html.txt" with { type: "text" };
import docsJs from "./static/docs.js.txt" with { type: "text" };
import landingCss from "./static/landing.css" with { type: "text" };
import landingHtml from "./static/landing.html.txt" with { type: "text" };
import landingJs from "./static/landing.js.txt" with { type: "text" };

/** A static page or a file of one. */
export type Page = {
  readonly headers: Record<string, string>;
  readonly body: Uint8Array<ArrayBuffer> | string;
};

const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'";
/** Swagger UI sets styles on its elements and has its icons as data. */
const DOCS_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

const html = (body: string, policy: string): Page => ({
  headers: {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": policy,
    "cache-control": "no-cache",
  },
  body,
});

const asset = (type: string, body: Page["body"]): Page => ({
  headers: { "content-type": `${type}; charset=utf-8`, "cache-control": "no-cache" },
  body,
});

/** The pages of the manager by their paths: its front page and the reader of the API. */
export async function loadPages(): Promise<ReadonlyMap<string, Page>> {
  const [bundle, styles] = await Promise.all([Bun.file(swaggerJs).bytes(), Bun.file(swaggerCss).bytes()]);
  return new Map<string, Page>([
    ["/", html(landingHtml.replace("{{version}}", VERSION), POLICY)],
    ["/static/landing.css", asset("text/css", landingCss)],
    ["/static/landing.js", asset("text/javascript", landingJs)],
    ["/api/docs", html(docsHtml, DOCS_POLICY)],
    ["/api/docs/start.js", asset("text/javascript", docsJs)],
    ["/api/docs/swagger-ui-bundle.js", asset("text/javascript", bundle)],
    ["/api/docs/swagger-ui.css", asset("text/css", styles)],
  ]);
}
