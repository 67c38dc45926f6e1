import type { Logger } from "../../kit/log.ts";
import type { KernelSpec, ManagerMessage } from "../../wire/generated/berth.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { failureOf, type Images } from "../images/images.ts";
import type { Supervisor } from "../kernels/supervisor.ts";
import type { Outbox } from "./outbox.ts";

type ManagerBody = NonNullable<ManagerMessage["body"]>;

/** Carries out what the manager wants. Every command may come twice. */
export function createCommands(options: {
  readonly supervisor: Supervisor;
  readonly images: Images;
  readonly gateway: Gateway;
  readonly outbox: Outbox;
  readonly log: Logger;
  readonly defaults: { readonly scratchBytes: number; readonly logLimitBytes: number };
  readonly onImagesChanged: () => void;
}): (body: ManagerBody) => void {
  const { supervisor, images, gateway, outbox, log, defaults, onImagesChanged } = options;

  function tryKernel(ref: { kernelId: string; generation: number }, run: () => void): void {
    try {
      run();
    } catch (err) {
      log.warn({ err, kernel: ref.kernelId }, "a command for a kernel could not be taken");
      const { kernelId, generation } = ref;
      const value = { kernelId, generation, failure: failureOf(err) };
      outbox.put(`failed:${kernelId}.${generation}`, () => ({ $case: "commandFailed", value }));
    }
  }

  function withDefaults(spec: KernelSpec): KernelSpec {
    const scratchBytes = spec.scratchBytes || defaults.scratchBytes;
    // The node's own limit is a limit, whatever the manager would like to keep.
    const wanted = spec.logLimitBytes || defaults.logLimitBytes;
    return { ...spec, scratchBytes, logLimitBytes: Math.min(wanted, defaults.logLimitBytes) };
  }

  async function removeImage(reference: string): Promise<void> {
    let failure: ReturnType<typeof failureOf> | undefined;
    try {
      await images.remove(reference);
    } catch (err) {
      failure = failureOf(err);
    }
    outbox.put(`removed:${reference}`, () => ({ $case: "imageRemoved", value: { reference, failure } }));
    onImagesChanged();
  }

  return (body) => {
    switch (body.$case) {
      case "ensureKernel": {
        const { spec } = body.value;
        if (spec !== undefined) tryKernel(spec, () => supervisor.ensure(withDefaults(spec)));
        return;
      }
      case "stopKernel": {
        const { kernelId, sessionId, generation, graceMs, force } = body.value;
        const ref = { kernelId, sessionId, generation };
        return tryKernel(ref, () => supervisor.stop({ ref, graceMs, force }));
      }
      case "forgetKernel":
        return tryKernel(body.value, () => supervisor.forget(body.value));
      case "pullImage":
        return images.pull(body.value.pullId, body.value.reference);
      case "cancelPull":
        return images.cancel(body.value.pullId);
      case "removeImage":
        void removeImage(body.value.reference);
        return;
      case "openStream":
        void gateway.serve(body.value).catch((err: unknown) => {
          const { streamId } = body.value;
          const failure = failureOf(err);
          log.warn({ streamId, cause: failure.message }, "a data stream could not be opened");
          outbox.put(`stream:${streamId}`, () => ({ $case: "streamFailed", value: { streamId, failure } }));
        });
        return;
      default:
        // What a newer manager says and this agent does not know.
        log.debug({ command: body.$case }, "a command that is not known here");
    }
  };
}
