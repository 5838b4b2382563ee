import type { FastifyRequest } from 'fastify';
import type { Clock } from '#shared/process/clock.ts';
import { storedFields } from '#shared/protocol/records/key-record.ts';
import { type ChangeWriter, isAtVerifiers } from '#shared/protocol/writer/writer.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { sourceOf } from '#shared/rules/ip-ranges.ts';
import { canBeSecret, hashSecret } from '#shared/rules/key-format.ts';
import type { Apis } from '../../core/apis/apis.ts';
import type { BootstrapKeys } from '../../core/callers/bootstrap-keys.ts';
import type { RootKeys } from '../../core/callers/root-keys.ts';
import type { Keys } from '../../core/keys/keys.ts';
import type { Key, KeyView } from '../../core/records/key-view.ts';
import { REVOKE } from '../../core/schema/event-types.ts';
import { effectOf } from '../../core/serve/call.ts';
import { namesOf } from '../../core/serve/errors.ts';
import type { CallRecorder } from '../../core/serve/ports.ts';
import type { RateLimits } from '../../core/serve/rate-limits.ts';
import type { App } from '../../core/serve/server.ts';
import { Turns } from '../../core/serve/turns.ts';

export const REVOKE_PATH = '/oauth2/revoke';

const BODY_BYTES_MAX = 8192;
/** Calls of one address at the same time. */
const PER_ADDRESS = { atOnce: 4, waitingMax: 0 };
const DISABLED = { enabled: false };
const OTHER_TYPE = new ApiError(
  'UNSUPPORTED_MEDIA_TYPE',
  'Content-Type: must be application/x-www-form-urlencoded; send the form token=<secret>',
);

interface RevocationParts {
  readonly bootstrapKeys: BootstrapKeys;
  readonly rootKeys: Pick<RootKeys, 'lookUp'>;
  readonly keys: Pick<
    Keys,
    'lookUpSecret' | 'lookUpDeleted' | 'deletionOf' | 'isApiDeleted' | 'deletionOfApi'
  >;
  readonly view: Pick<KeyView, 'get'>;
  readonly apis: Pick<Apis, 'get'>;
  readonly changeWriter: Pick<ChangeWriter, 'apply' | 'whenComplete'>;
  readonly audit: CallRecorder;
  readonly rates: RateLimits;
  readonly clock: Clock;
  readonly onRevoked: () => void;
}

/** The refusal of a request, in the form of RFC 7009. */
interface Refusal {
  readonly error: 'invalid_request' | 'unsupported_token_type';
  readonly error_description: string;
}

/**
 * Adds the path at which a holder revokes a key (RFC 7009). It is no operation: nobody needs a root key, because who has the
 * secret can do no more with it than the holder.
 */
export async function receiveRevocations(app: App, parts: RevocationParts): Promise<void> {
  const turns = new Turns(PER_ADDRESS);
  await app.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser<string>(
      'application/x-www-form-urlencoded',
      { parseAs: 'string' },
      (_request, body, done) => done(null, { form: body }),
    );
    scope.addContentTypeParser('*', (_request, _payload, done) => done(OTHER_TYPE));
    const options = { bodyLimit: BODY_BYTES_MAX, schema: { hide: true } };
    scope.post(REVOKE_PATH, options, async (request, reply) => {
      // Here the body has arrived: slow senders take nobody's turn.
      const turn = turns.take(sourceOf(addressOf(request)));
      if (turn === undefined)
        throw new ApiError('RATE_LIMITED', 'too many revocations at a time from this address');
      const endTurn = await turn;
      try {
        const { form } = Object(request.body) as { readonly form?: string };
        const refusal = await revoke(new URLSearchParams(form).getAll('token'), request, parts);
        return refusal ? reply.code(400).send(refusal) : {};
      } finally {
        endTurn();
      }
    });
  });
}

/** After a hang-up the connection has no address. */
const addressOf = ({ ip }: FastifyRequest): string => ip ?? 'unknown';

/** Disables the key with this secret, and resolves when that is complete. Rejects with SERVICE_UNAVAILABLE or RATE_LIMITED. */
async function revoke(
  tokens: readonly string[],
  request: FastifyRequest,
  parts: RevocationParts,
): Promise<Refusal | undefined> {
  const [token = ''] = tokens;
  if (tokens.length !== 1 || !canBeSecret(token))
    return refusal('invalid_request', 'token: required once in the form, the secret of a key');
  if (parts.bootstrapKeys.idOf(hashSecret(token)) !== undefined || (await parts.rootKeys.lookUp(token)))
    return refusal('unsupported_token_type', 'token: is a root key; delete it with rootKeys.deleteRootKey');
  const place = (await parts.keys.lookUpSecret(token)) ?? (await parts.keys.lookUpDeleted(token));
  if (!place) {
    // It is not valid, which is all that the caller asked for; but whoever guesses is counted.
    await parts.rates.countFailure(request);
    return undefined;
  }
  const key = await parts.view.get(place.apiId, place.keyId);
  if (key && (await parts.apis.get(place.apiId))?.selfRevocation !== true)
    return refusal(
      'unsupported_token_type',
      'token: holders may not revoke the keys of this API; ask its owner',
    );
  const end = key ? await disabled(key, request, parts) : await deleted(place, parts);
  if (end && end.state !== 'complete')
    throw unavailable(
      isAtVerifiers(end)
        ? 'no verifier accepts the key any more, but services behind may still accept its tokens; send it again to wait for their end'
        : 'the key has ended, but not everywhere yet; send it again to wait for it',
    );
  if (end?.overtakenBy !== undefined)
    throw unavailable(`change ${end.overtakenBy} enabled the key again meanwhile; send it again`);
  return undefined;
}

interface Place {
  readonly apiId: string;
  readonly keyId: string;
}

/** The end of a key that is there: waits for the change that disabled it, or disables it. */
const disabled = (
  { apiId, keyId, enabled, sequence }: Key,
  request: FastifyRequest,
  parts: RevocationParts,
) =>
  enabled === false
    ? parts.changeWriter.whenComplete(apiId, keyId, sequence, true)
    : disable({ apiId, keyId }, request, parts);

/**
 * The end of a key that was deleted, itself or with its API; undefined = the log no longer reaches back to that, so every
 * verifier with a lease has applied it.
 */
async function deleted({ apiId, keyId }: Place, { keys, changeWriter }: RevocationParts) {
  if (await keys.isApiDeleted(apiId))
    return changeWriter.whenComplete(apiId, '', await keys.deletionOfApi(apiId));
  return changeWriter.whenComplete(apiId, keyId, await keys.deletionOf(apiId, keyId));
}

async function disable(
  on: Place,
  request: FastifyRequest,
  { changeWriter, audit, clock, onRevoked }: RevocationParts,
) {
  const by = { address: addressOf(request) };
  const event = { time: clock.wallMs(), ...namesOf(request), operation: REVOKE, by, on };
  let record: Promise<void> | undefined;
  try {
    return await changeWriter.apply(
      { ...on, operation: 'update', fields: storedFields(DISABLED) },
      undefined,
      (entry) => {
        onRevoked();
        record = audit.record('done', { ...event, outcome: 'OK', ...effectOf(entry, DISABLED) });
      },
    );
  } catch (error) {
    record ??= audit.record('done', { ...event, outcome: 'SERVICE_UNAVAILABLE', after: DISABLED });
    throw error;
  } finally {
    await record;
  }
}

const refusal = (error: Refusal['error'], description: string): Refusal => ({
  error,
  error_description: description,
});
