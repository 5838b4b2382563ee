import type { CallLine } from './call-line.ts';
import type { Asked, Revoked } from './outcome.ts';
import { fits, type Target, takenFrom } from './target.ts';

export interface TrialOptions {
  /** Clients for each instance, and questions a second of all of them together. */
  readonly clients: number;
  readonly perSecond: number;
  /** Questions before the call, in milliseconds. */
  readonly beforeMs: number;
  /** Time without an acceptance after which a revocation is over, and the longest that one is watched. */
  readonly quietMs: number;
  readonly longestMs: number;
}

const CALL_MS_MAX = 30_000;
const ASK_MS_MAX = 10_000;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Makes a key, asks about it from all clients, revokes it, and goes on asking until it was refused for a while.
 * @returns all that was asked and answered
 * @throws Error if the key could not be made, or if an instance does not accept it
 */
export async function runTrial(
  target: Target,
  trial: number,
  options: TrialOptions,
): Promise<(Asked | Revoked)[]> {
  const created = await send(target.create(), CALL_MS_MAX);
  if (created.status >= 300)
    throw new Error(`create: answered ${created.status} ${created.body.slice(0, 200)}`);
  const taken = takenFrom(target.take, created.body);
  const asks = target.asks(taken);
  for (const [i, ask] of asks.entries()) await untilAccepted(target, ask, i);
  const history: (Asked | Revoked)[] = [];
  let isOver = false;
  let acceptedAtMs = performance.now();
  const clients = asks.flatMap((ask, instance) =>
    Array.from({ length: options.clients }, async () => {
      const periodMs = (1000 * asks.length * options.clients) / options.perSecond;
      await pause(Math.random() * periodMs);
      let dueMs = performance.now();
      while (!isOver) {
        const sentMs = performance.now();
        const answer = await send(ask, ASK_MS_MAX).catch(() => undefined);
        const answeredMs = performance.now();
        const verdict =
          !answer || answer.status >= 500 ? 'failed' : fits(target.accepted, answer) ? 'accepted' : 'refused';
        history.push({ kind: 'ask', trial, instance, sentMs, answeredMs, verdict });
        if (verdict === 'accepted') acceptedAtMs = Math.max(acceptedAtMs, sentMs);
        dueMs = Math.max(dueMs + periodMs, performance.now() - periodMs);
        await pause(Math.max(0, dueMs - performance.now()));
      }
    }),
  );
  await pause(options.beforeMs);
  const sentMs = performance.now();
  const answer = await send(target.revoke(taken), CALL_MS_MAX).catch(() => undefined);
  const answeredMs = performance.now();
  const isClaimed = answer !== undefined && fits(target.claim, answer);
  history.push({ kind: 'revoke', trial, sentMs, answeredMs, isClaimed });
  while (
    performance.now() - Math.max(answeredMs, acceptedAtMs) < options.quietMs &&
    performance.now() - sentMs < options.longestMs
  )
    await pause(20);
  isOver = true;
  await Promise.all(clients);
  if (!answer || answer.status >= 300)
    throw new Error(
      `revoke: answered ${answer ? `${answer.status} ${answer.body.slice(0, 200)}` : 'nothing'}`,
    );
  return history;
}

async function untilAccepted(target: Target, ask: CallLine, instance: number): Promise<void> {
  const untilMs = performance.now() + CALL_MS_MAX;
  for (;;) {
    const answer = await send(ask, ASK_MS_MAX).catch((error: Error) => ({ status: 0, body: error.message }));
    if (fits(target.accepted, answer)) return;
    if (performance.now() > untilMs)
      throw new Error(
        `ask.curl[${instance}]: the new key is not accepted: ${answer.status} ${answer.body.slice(0, 200)}`,
      );
    await pause(50);
  }
}

async function send(
  { method, url, headers, body }: CallLine,
  ms: number,
): Promise<{ status: number; body: string }> {
  const init = { method, headers, signal: AbortSignal.timeout(ms), redirect: 'manual' as const };
  const answer = await fetch(url, body === undefined ? init : { ...init, body });
  return { status: answer.status, body: await answer.text() };
}
