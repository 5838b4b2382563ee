import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import type { Clock } from '#shared/process/clock.ts';
import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import { command, oneOf } from '#shared/redis/command.ts';
import { callsOnce, onceMark } from '#shared/redis/redis-keys.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { hashSecret } from '#shared/rules/key-format.ts';
import type { Draw } from '../ports.ts';
import type { Call } from './call.ts';
import { type Operation, pathOf } from './operation.ts';
import { Excess } from './rate-limits.ts';

const IDEMPOTENCY_KEY = 'idempotency-key';
/** A text, bare or in quotes as in the draft of the IETF. */
const FORM = /^(?:([!#-~]{1,255})|"([!#-~]{1,255})")$/;
const KEPT_MS = 86_400_000;
/** Maximum number of calls with the header that took effect, or may have, of one caller in a day. */
export const CALLS_ONCE_MAX = 10_000;
const CIPHER = 'aes-256-gcm';
const [IV_BYTES, TAG_BYTES] = [12, 16];

const beginOnce = command(
  new URL('./begin-once.lua', import.meta.url),
  ['mark', 'count'],
  ['content', 'most', 'salt', 'began', 'lease', 'kept'],
  oneOf('status', {
    ...{ DONE: ['answer'], OTHER: [], BUSY: [], FULL: ['leftMs#'] },
    BEGIN: ['salt', 'began#', 'run#'],
  }),
);
const endOnce = command(
  new URL('./end-once.lua', import.meta.url),
  ['mark', 'count'],
  ['run', 'outcome', 'answer'],
  () => undefined,
);

/** The refusal of a call that is being made. */
class InProgress extends ApiError {
  readonly retryAfterMs = 1000;
}

/**
 * Makes calls with an Idempotency-Key once, and answers each repetition with the first answer. Redis has the answer, which may be
 * a secret, only encrypted with what is derived from the caller's own secret.
 */
export class Once {
  readonly #writer: DurableWriter;
  readonly #clock: Clock;
  readonly #leaseMs: number;
  readonly #onRepeated: () => void;

  /** @param leaseMs time after which a call that did not end counts as interrupted; no call may take so long */
  constructor(writer: DurableWriter, clock: Clock, leaseMs: number, onRepeated: () => void) {
    this.#writer = writer;
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    this.#onRepeated = onRepeated;
  }

  /**
   * Makes a call, once if its operation adds or creates and the request has the header. Rejects with BAD_REQUEST, CONFLICT,
   * RATE_LIMITED or SERVICE_UNAVAILABLE besides.
   * @param secret of the caller
   */
  async make<T>(
    operation: Operation,
    { request, secret }: { readonly request: FastifyRequest; readonly secret: string },
    call: Call,
    make: (call: Call) => Promise<T>,
  ): Promise<T> {
    const name = operation.adds ? nameIn(request) : undefined;
    if (name === undefined) return make(call);
    const { operationId = name } = Object(call.request) as { readonly operationId?: string };
    if (operationId !== name)
      throw new ApiError('BAD_REQUEST', 'operationId: must equal Idempotency-Key; send one of them');
    const caller = hashSecret(call.caller.id);
    const mark = onceMark(caller, hashSecret(`${secret}\n${name}`));
    const beginning = await this.#begin(mark, caller, `${pathOf(operation)} ${JSON.stringify(call.request)}`);
    const keyOf = (salt: string, use: string, length = 32) =>
      Buffer.from(hkdfSync('sha256', secret, salt, `${name} ${use}`, length));
    if ('answer' in beginning) {
      request.call = { ...call, isRepetition: true };
      this.#onRepeated();
      return opened(beginning.answer, (salt) => keyOf(salt, 'answer')) as T;
    }
    const { salt, began, run } = beginning;
    const draw: Draw = {
      ...{ name: hashSecret(`${caller} ${name}`), nowMs: began },
      random: (length) => keyOf(salt, `draw ${length}`, length),
    };
    const end = (outcome: 'done' | 'nothing' | 'unknown', answer = '') =>
      // Without it, the call counts as interrupted once its lease is over.
      this.#writer
        .send(endOnce({ mark, count: callsOnce(caller), run, outcome, answer }))
        .catch(() => undefined);
    try {
      const answer = await make({ ...call, draw });
      await end('done', sealed(answer, salt, keyOf(salt, 'answer')));
      return answer;
    } catch (error) {
      const isUnknown = !(error instanceof ApiError) || error.status >= 500;
      await end(isUnknown ? 'unknown' : 'nothing');
      throw error;
    }
  }

  async #begin(mark: string, caller: string, content: string) {
    const salt = randomBytes(16).toString('base64url');
    const run = beginOnce({
      ...{ mark, count: callsOnce(caller), content: hashSecret(content), salt, began: this.#clock.wallMs() },
      ...{ most: CALLS_ONCE_MAX, lease: this.#leaseMs, kept: KEPT_MS },
    });
    const { reply, replicated } = await this.#writer.send(run);
    if (reply.status === 'OTHER')
      throw new ApiError('CONFLICT', 'Idempotency-Key: another call had it; send a new one');
    if (reply.status === 'BUSY')
      throw new InProgress('CONFLICT', 'Idempotency-Key: the call with it is in progress; send it again');
    if (reply.status === 'FULL')
      throw new Excess('once', `more than ${CALLS_ONCE_MAX} calls with Idempotency-Key a day`, reply.leftMs);
    if (reply.status === 'BEGIN' && !replicated)
      throw unavailable('not all replicas confirmed that the call begins; nothing was changed');
    return reply;
  }
}

/** Returns the header's value. Throws BAD_REQUEST. */
function nameIn({ headers }: FastifyRequest): string | undefined {
  const text = headers[IDEMPOTENCY_KEY];
  if (text === undefined) return undefined;
  const [, bare, quoted] = FORM.exec(String(text)) ?? [];
  const name = bare ?? quoted;
  if (name === undefined)
    throw new ApiError('BAD_REQUEST', 'Idempotency-Key: must be 1 to 255 printable characters, no blanks');
  return name;
}

function sealed(answer: unknown, salt: string, key: Buffer): string {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv(CIPHER, key, iv);
  const text = Buffer.concat([cipher.update(JSON.stringify(answer)), cipher.final()]);
  return `${salt}.${Buffer.concat([iv, cipher.getAuthTag(), text]).toString('base64url')}`;
}

function opened(text: string, keyOf: (salt: string) => Buffer): unknown {
  const [salt = '', box = ''] = text.split('.');
  const bytes = Buffer.from(box, 'base64url');
  const decipher = createDecipheriv(CIPHER, keyOf(salt), bytes.subarray(0, IV_BYTES));
  decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
  const answer = decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES));
  return JSON.parse(Buffer.concat([answer, decipher.final()]).toString());
}
