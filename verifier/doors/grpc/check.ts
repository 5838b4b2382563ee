import { ApiError } from '#shared/rules/errors.ts';
import { traceIdOf } from '#shared/rules/request-id.ts';
import { ANY_API, API_ID } from '#shared/rules/slugs.ts';
import { DEFAULT_REQUIREMENTS } from '../../core/question.ts';
import {
  DOOR_FIELDS,
  memoize,
  NO_META,
  showsKey,
  VERDICT_FIELDS,
  type VerdictWithKey,
} from '../../core/verdict-body.ts';
import {
  type AuthzSettings,
  apiNamed,
  type ClientQuestion,
  clientQuestion,
  requiringEncoded,
} from '../http/authz.ts';
import {
  asReadByServers,
  type CredentialSource,
  type HeaderLines,
  type keyHeaders,
  keyParameters,
  QUERY_PARAMETER,
  withoutKeyCookies,
} from '../http/credentials.ts';
import {
  type AuthzAnswer,
  type AuthzOutcome,
  type HeaderLine,
  isIdentityHeader,
} from '../http/gateway-answer.ts';
import { PROBLEM_TYPE } from '../http/respond.ts';

/** `CheckRequest` of ext-authz.proto. Every field may be missing. */
export interface CheckRequest {
  readonly attributes?: {
    readonly source?: { readonly address?: { readonly socket_address?: { readonly address?: string } } };
    readonly request?: { readonly http?: HttpRequest };
    readonly context_extensions?: Readonly<Record<string, string>>;
  };
}
interface HttpRequest {
  readonly id?: string;
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly header_map?: { readonly headers?: readonly RawHeader[] };
}
interface RawHeader {
  readonly key?: string;
  readonly value?: string;
  readonly raw_value?: Uint8Array;
}

/** `CheckResponse` of the same file. */
export interface CheckResponse {
  readonly status: { readonly code: number };
  readonly ok_response?: {
    readonly headers: readonly HeaderValueOption[];
    readonly headers_to_remove: readonly string[];
    readonly query_parameters_to_remove: readonly string[];
    readonly response_headers_to_add?: readonly HeaderValueOption[];
  };
  readonly denied_response?: {
    readonly status: { readonly code: number };
    readonly headers: readonly HeaderValueOption[];
    readonly body: string;
  };
  readonly dynamic_metadata: Struct;
}
interface HeaderValueOption {
  readonly header: { readonly key: string; readonly value: string };
  readonly append: { readonly value: false };
  readonly append_action: number;
}

/** The context extension with the API to which a key must belong, or ANY_API. */
const API_EXTENSION = 'api_id';

/** The context extension with the permissions that a key must have; if absent, none. */
const PERMISSIONS_EXTENSION = 'permissions';

/** The context extension that lets requests without a key pass: `true`; if absent, they are refused. */
const OPTIONAL_EXTENSION = 'optional';

const EXTENSIONS: readonly string[] = [API_EXTENSION, PERMISSIONS_EXTENSION, OPTIONAL_EXTENSION];

/**
 * Reads Envoy's question. Throws ApiError BAD_REQUEST if a context extension of Envoy's configuration is invalid,
 * unknown, or missing.
 */
export function checkQuestion({ attributes = {} }: CheckRequest, settings: AuthzSettings): ClientQuestion {
  const extensions = attributes.context_extensions ?? {};
  for (const name of Object.keys(extensions)) {
    if (!EXTENSIONS.includes(name))
      throw new ApiError(
        'BAD_REQUEST',
        `${name}: unknown context extension; known are ${EXTENSIONS.join(', ')}`,
      );
  }
  const api = extensions[API_EXTENSION];
  if (api !== undefined && api !== ANY_API && !API_ID.test(api))
    throw new ApiError('BAD_REQUEST', `${API_EXTENSION}: must match ${API_ID.source}, or be ${ANY_API}`);
  const apiId = apiNamed(api, API_EXTENSION, settings);
  const query = extensions[PERMISSIONS_EXTENSION];
  const requirements =
    query === undefined ? DEFAULT_REQUIREMENTS : requiringEncoded(query, PERMISSIONS_EXTENSION);
  const optional = extensions[OPTIONAL_EXTENSION];
  if (optional !== undefined && optional !== 'true')
    throw new ApiError('BAD_REQUEST', `${OPTIONAL_EXTENSION}: must be "true", or absent`);
  const { method, path } = attributes.request?.http ?? {};
  const original = { method, target: path };
  const headers = linesOf(attributes.request?.http);
  const { address } = attributes.source?.address?.socket_address ?? {};
  // The other end of Envoy's connection. Of the headers, only those of a trusted proxy count.
  const clientIp = settings.clientIps?.behind(address, headers['x-forwarded-for']?.join(','));
  return clientQuestion(
    original,
    headers,
    { apiId, clientIp, requirements, isOptional: optional === 'true' },
    settings,
  );
}

/** Returns the client's request id according to Envoy; undefined = none. */
export function checkRequestId({ attributes }: CheckRequest): string | undefined {
  return attributes?.request?.http?.id;
}

/** Returns the trace id of the client's request; undefined = none. */
export function checkTraceId({ attributes }: CheckRequest): string | undefined {
  return traceIdOf(linesOf(attributes?.request?.http)['traceparent']);
}

/**
 * Returns an answer in Envoy's form. It tells Envoy to remove the key and identity headers from the client's
 * request.
 * @param metadata what Envoy's other filters and its access log can read
 * @param holdsKey the result of `keyHeaders` for `sources`
 */
export function checkResponse(
  { status, headers, allowances, body, type = PROBLEM_TYPE }: AuthzAnswer,
  metadata: Struct,
  request: CheckRequest,
  sources: readonly CredentialSource[],
  holdsKey: ReturnType<typeof keyHeaders>,
): CheckResponse {
  if (status !== 200) {
    const code = GRPC_CODES[status] ?? GRPC_INTERNAL;
    const [contentType = ''] = linesOf(request.attributes?.request?.http)['content-type'] ?? [];
    const all: HeaderLine[] = [...headers, ['Content-Type', type], ['Cache-Control', 'no-store']];
    // From a 429, Envoy itself would make UNAVAILABLE, after which clients of gRPC try again at once.
    if (contentType.startsWith('application/grpc')) all.push(['Grpc-Status', String(code)]);
    return {
      status: { code },
      denied_response: { status: { code: status }, headers: all.map(overwrite), body },
      dynamic_metadata: metadata,
    };
  }
  const lines = linesOf(request.attributes?.request?.http);
  const ownNames = new Set(headers.map(([name]) => name.toLowerCase()));
  const { cookie: cookies = [] } = lines;
  const restOfCookies = cookies.map((line) => withoutKeyCookies(line, sources)).filter(Boolean);
  const hasKeyCookie = restOfCookies.join() !== cookies.join();
  const removedNames = Object.entries(lines)
    .filter(([name, values]) =>
      isIdentityHeader(name)
        ? !ownNames.has(name)
        : name === 'cookie'
          ? hasKeyCookie && restOfCookies.length === 0
          : values?.some((value) => holdsKey(asReadByServers(name), value)),
    )
    .map(([name]) => name);
  // Envoy compares the names as they are spelt in the query.
  const parameters = new Set([
    QUERY_PARAMETER,
    ...keyParameters(request.attributes?.request?.http?.path ?? ''),
  ]);
  return {
    status: { code: 0 },
    ok_response: {
      headers: [
        ...headers,
        ...(hasKeyCookie && restOfCookies.length > 0 ? [['Cookie', restOfCookies.join('; ')] as const] : []),
      ].map(overwrite),
      headers_to_remove: removedNames,
      query_parameters_to_remove: sources.includes('query') ? [...parameters] : [],
      ...(allowances ? { response_headers_to_add: allowances.map(overwrite) } : {}),
    },
    dynamic_metadata: metadata,
  };
}

/** gRPC codes by HTTP status: UNAUTHENTICATED, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE. Any other: INTERNAL. */
const GRPC_CODES: Readonly<Record<number, number>> = { 401: 16, 403: 7, 429: 8, 503: 14 };
export const GRPC_INTERNAL = 13;

/**
 * Sets both fields, the old and the new one. Recent versions of Envoy would otherwise append, and leave the
 * client's own value first.
 */
function overwrite([key, value]: readonly [string, string]): HeaderValueOption {
  return { header: { key, value }, append: { value: false }, append_action: OVERWRITE_IF_EXISTS_OR_ADD };
}

const OVERWRITE_IF_EXISTS_OR_ADD = 2;

function linesOf({ headers = {}, header_map }: HttpRequest = {}): HeaderLines {
  const lines: Record<string, string[]> = Object.create(null);
  for (const { key = '', value = '', raw_value } of header_map?.headers ?? []) {
    const line = raw_value?.length ? Buffer.from(raw_value).toString('latin1') : value;
    // Appends instead of copying: copying the list for each line would take quadratic time, and 1 MiB can
    // contain a hundred thousand lines.
    const lower = key.toLowerCase();
    const sameNamed = lines[lower];
    if (sameNamed) sameNamed.push(line);
    else lines[lower] = [line];
  }
  for (const [key, value] of Object.entries(headers)) lines[key.toLowerCase()] ??= [value];
  return lines;
}

/** `google.protobuf.Struct`, in the form of ext-authz.proto. */
export interface Struct {
  readonly fields: Readonly<Record<string, Value>>;
}
type Value =
  | { readonly string_value: string }
  | { readonly number_value: number }
  | { readonly bool_value: boolean }
  | { readonly struct_value: Struct }
  | { readonly list_value: { readonly values: readonly Value[] } };

/** Maximum length of a text of `meta`. */
export const TEXT_MAX = 256;

const textValue = (text: string): Value => ({ string_value: text });
const listValue = memoize(
  (list: readonly string[]): Value => ({ list_value: { values: list.map(textValue) } }),
);

/** The fields with one text or a list of texts, under their names in a verdict. */
const FIELDS = DOOR_FIELDS.flatMap(({ field, isInMetadata }) => (isInMetadata ? field : []));

/**
 * Returns what Envoy's other filters and its access log can read about an outcome: its code and, if the
 * verdict shows a key, that key, under the same names as in a verdict. A field without a value is left out.
 * @param metaFields names of the fields of `meta` to include
 */
export function dynamicMetadata(
  outcome: AuthzOutcome | { readonly code: string },
  metaFields: readonly string[],
): Struct {
  const code = textValue(outcome.code);
  if (!('entry' in outcome && showsKey(outcome))) return { fields: { code } };
  const fields: Record<string, Value> = { code };
  for (const name of FIELDS) {
    const value = VERDICT_FIELDS[name].value(outcome);
    if (value !== undefined) fields[name] = typeof value === 'string' ? textValue(value) : listValue(value);
  }
  const identityId = outcome.effectivePermissions?.identity?.id;
  if (identityId !== undefined)
    fields['identity'] = { struct_value: { fields: { id: textValue(identityId) } } };
  const meta = metaOf(outcome, metaFields);
  if (Object.keys(meta).length > 0) fields['meta'] = { struct_value: { fields: meta } };
  return { fields };
}

function metaOf(outcome: VerdictWithKey, metaFields: readonly string[]): Record<string, Value> {
  const fields: Record<string, Value> = {};
  const meta = metaFields.length > 0 ? VERDICT_FIELDS.meta.value(outcome) : NO_META;
  for (const name of metaFields) {
    const value = Object.hasOwn(meta, name) ? scalarValue(meta[name]) : undefined;
    if (value !== undefined) fields[name] = value;
  }
  return fields;
}

/** Returns undefined for a value of another kind, and for a text that is too long. */
function scalarValue(value: unknown): Value | undefined {
  if (typeof value === 'string') return value.length > TEXT_MAX ? undefined : textValue(value);
  if (typeof value === 'boolean') return { bool_value: value };
  // JSON can contain 1e999, which is infinite.
  return typeof value === 'number' && Number.isFinite(value) ? { number_value: value } : undefined;
}
