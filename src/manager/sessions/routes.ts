import { sessionRoutes as routes } from "../../contract/sessions.ts";
import { isFinal } from "../../contract/states.ts";
import { BerthError } from "../../kit/errors.ts";
import type { Principal } from "../accounts/principal.ts";
import type { AgentPort } from "../agents/ports.ts";
import { handle, handleStream, handleWebSocket, type Mounted } from "../http/handle.ts";
import { type LogService, type LogSubject, outputAway } from "../logs/service.ts";
import { asFrames, asText } from "../logs/text.ts";
import type { Store } from "../store/store.ts";
import { kernelsOf } from "./repository.ts";
import type { SessionService } from "./service.ts";
import type { SessionStreams } from "./streams.ts";

export type SessionRouteDeps = {
  readonly store: Store;
  readonly sessions: SessionService;
  readonly streams: SessionStreams;
  readonly logs: LogService;
  readonly agents: Pick<AgentPort, "ready">;
};

export function sessionRoutes(deps: SessionRouteDeps): readonly Mounted[] {
  const { store, sessions, streams, logs } = deps;

  /** What is known now of the session whose output is read. */
  function subjectOf(principal: Principal, reference: string, wanted: string | undefined) {
    return store.read(async (db) => {
      const session = await sessions.reach(db, principal, reference, "session.read-any");
      const kernels = await kernelsOf(db, session.id);
      const kernel = wanted === undefined ? kernels[0] : kernels.find((each) => each.id === wanted);
      if (kernel === undefined) {
        throw new BerthError("not-found", `${session.name} has no kernel "${wanted ?? ""}".`, {
          field: "kernel",
        });
      }
      const subject: LogSubject = {
        key: { kernelId: kernel.id, generation: kernel.generation },
        session: session.id,
        agent: kernel.agent_id,
        stored: kernel.log_stored === 1,
        bytes: kernel.log_bytes,
        ended: isFinal(session.status),
      };
      return { subject, node: session.agent_name };
    });
  }

  return [
    handle(routes.create, ({ principal, body }) => sessions.create(principal, body), { whole: true }),
    handle(routes.list, ({ principal, query }) => sessions.list(principal, query)),
    handle(routes.get, ({ principal, params }) => sessions.get(principal, params.session)),
    handle(routes.update, ({ principal, params, body }) => sessions.update(principal, params.session, body)),
    handle(routes.terminate, ({ principal, params, query }) =>
      sessions.terminate(principal, params.session, query.force === "true"),
    ),
    handle(routes.history, ({ principal, params }) => sessions.history(principal, params.session)),
    handleStream(routes.logs, async ({ principal, params, query, alive }) => {
      const { offset, tail, kernel, format } = query;
      const follow = query.follow === "true";
      if (tail !== undefined && offset > 0) {
        throw new BerthError("invalid-request", "Give `tail` or `offset`, not both.", { field: "tail" });
      }
      const { subject, node } = await subjectOf(principal, params.session, kernel);
      const { stored, agent, session } = subject;
      if (!follow && !stored && agent !== null && !deps.agents.ready(agent)) throw outputAway(node ?? "");
      // By id from here on: a new session may take the name while this one is followed.
      const ask = async () => (await subjectOf(principal, session, kernel)).subject;
      const frames = logs.read(ask, { offset, tail, follow, signal: alive });
      if (format === "frames") return { body: asFrames(frames) };
      return { contentType: "text/plain; charset=utf-8", body: asText(frames) };
    }),
    handleWebSocket(routes.exec, ({ principal, params, alive }) =>
      streams.exec(principal, params.session, alive),
    ),
    handleWebSocket(routes.attach, ({ principal, params, alive }) =>
      streams.attach(principal, params.session, alive),
    ),
  ];
}
