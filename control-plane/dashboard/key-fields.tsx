import { Failure, type Key } from './api.ts';

/** What people may set of a key, when they make it and later. */
export function KeyFields({ of }: { of?: Key }) {
  return (
    <>
      <label>
        Name
        <input name="name" maxLength={256} defaultValue={of?.name ?? ''} autocomplete="off" />
      </label>
      <label>
        Owner <small>its id in your own system</small>
        <input name="externalId" maxLength={256} defaultValue={of?.externalId ?? ''} autocomplete="off" />
      </label>
      <label>
        Expires <small>empty = never</small>
        <input name="expires" type="datetime-local" step="1" defaultValue={localText(of?.expires)} />
      </label>
      <label class="wide">
        Meta <small>a JSON object; every verification returns it</small>
        <textarea name="meta" rows={4} spellcheck={false} defaultValue={metaText(of?.meta)} />
      </label>
    </>
  );
}

/**
 * What was entered, as createKey takes it; with `was`, only what differs, as updateKey takes it: null clears.
 * Throws a Failure where it cannot be sent.
 */
export function enteredOf(field: (name: string) => string, was?: Key): Record<string, unknown> {
  const entered = {
    name: field('name') || null,
    externalId: field('externalId') || null,
    expires: field('expires') ? new Date(field('expires')).getTime() : null,
    meta: field('meta') ? parseMeta(field('meta')) : null,
  };
  const before = {
    name: was?.name?.trim() || null,
    externalId: was?.externalId?.trim() || null,
    expires: was?.expires === undefined ? null : new Date(localText(was.expires)).getTime(),
    meta: metaText(was?.meta) ? was?.meta : null,
  };
  return Object.fromEntries(
    Object.entries(entered).filter(
      ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name as keyof typeof before]),
    ),
  );
}

function parseMeta(text: string): object {
  try {
    const meta: unknown = JSON.parse(text);
    if (typeof meta === 'object' && meta !== null && !Array.isArray(meta)) return meta;
  } catch (error) {
    throw new Failure('BAD_REQUEST', `meta: ${(error as Error).message}`);
  }
  throw new Failure('BAD_REQUEST', 'meta: must be a JSON object, such as {"plan": "pro"}');
}

const metaText = (meta: object | undefined) =>
  meta && Object.keys(meta).length > 0 ? JSON.stringify(meta, null, 2) : '';

/** As `datetime-local` wants it: the local time, to the second. */
function localText(at: number | undefined): string {
  if (at === undefined) return '';
  return new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
