import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { KEY_FIELDS } from '#shared/protocol/records/key-record.ts';
import { limitText } from '#shared/protocol/records/limit.ts';
import { call, Failure, InvalidField, InvalidFields, type Key, may } from '../api/client.ts';
import { limitOf, limitsOf, namesOf, parseObject, slugsOf } from '../forms/entered-values.ts';
import { ActionForm, Field, FieldError, type FormEntry, Options } from '../forms/forms.tsx';
import { LimitInput } from '../forms/limit-input.tsx';
import { LimitRows, limitsGiven } from '../forms/limit-rows.tsx';
import { Picker } from '../forms/picker.tsx';
import { useLoad } from '../parts/loading.tsx';

type Fields = Omit<typeof KEY_FIELDS, 'enabled' | 'apiIds'>;
type FieldName = keyof Fields;

/** The fields of a key in the form: their kinds, as on the server, and their labels. */
const FIELDS: {
  readonly [Name in FieldName]: readonly [kind: Fields[Name]['kind'], label: string, hint?: string];
} = {
  name: ['text', 'Name'],
  externalId: ['text', 'Customer', 'its id in your own system'],
  expires: ['time', 'Expires', 'empty = never'],
  ratelimit: ['limit', 'Rate limit'],
  roles: ['slugs', 'Roles', 'such as editor; Enter adds it'],
  permissions: ['slugs', 'Permissions', 'such as files.read; Enter adds it'],
  environment: ['text', 'Environment', 'such as live or test'],
  allowedIps: ['ranges', 'Allowed addresses', 'such as 192.0.2.0/24 2001:db8::/32; empty = anywhere'],
  allowedOrigins: [
    'origins',
    'Allowed origins',
    'of web pages, such as https://app.example.com; empty = any',
  ],
  ratelimits: ['limits', 'Further rate limits'],
  concurrency: ['concurrency', 'Limits at the same time'],
  meta: ['object', 'Meta', 'a JSON object; every verification returns it'],
};
const LONG: ReadonlySet<string> = new Set(['object', 'slugs', 'ranges', 'origins']);
const NAMES = Object.keys(FIELDS) as FieldName[];
const isLimits = (name: FieldName) => name === 'ratelimits' || name === 'concurrency';
/** So many are always seen. */
const FIRST = 4;

/** Inputs for the fields of a key, in the forms that create and change a key. */
export function KeyFields({ of, children }: { of?: Key; children?: ComponentChildren }) {
  const catalogue = useCatalogue();
  const fieldOf = (name: FieldName) => {
    const [kind, label, hint] = FIELDS[name];
    const value = textOf(name, of);
    if (isLimits(name))
      return (
        <LimitRows key={name} {...{ name, label }} of={of?.[name] ?? []} isRate={name === 'ratelimits'} />
      );
    const id = `field-${name}`;
    const rows = kind === 'object' ? 4 : 2;
    const lines = <textarea id={id} name={name} rows={rows} spellcheck={false} defaultValue={value} />;
    const input = {
      text: <input id={id} name={name} maxLength={256} defaultValue={value} autocomplete="off" />,
      time: <input id={id} name={name} type="datetime-local" step="1" defaultValue={value} />,
      slugs: (
        <Picker
          {...{ id, name }}
          values={(name === 'roles' ? of?.roles : of?.permissions) ?? []}
          options={(name === 'roles' ? catalogue.roles : catalogue.permissions) ?? []}
          separator={name === 'roles' ? ', ' : ' '}
          isClosed={name === 'roles'}
        />
      ),
      limit: <LimitInput id={id} name={name} text={value} />,
      ...{ ranges: lines, origins: lines, object: lines, limits: null, concurrency: null },
    }[kind];
    const content = (
      <>
        {label} {hint && <small>{hint}</small>}
        {input}
        <FieldError name={name} />
      </>
    );
    return kind === 'limit' ? (
      // biome-ignore lint/a11y/useSemanticElements: a legend would stand elsewhere than the labels beside it
      <div key={name} class="field" role="group" aria-label={label}>
        {content}
      </div>
    ) : (
      <label key={name} for={id} class={LONG.has(kind) ? 'field wide' : 'field'}>
        {content}
      </label>
    );
  };
  return (
    <>
      {NAMES.slice(0, FIRST).map(fieldOf)}
      <details class="wide more-fields" open={of !== undefined}>
        <summary>More</summary>
        <div class="fields">
          {NAMES.slice(FIRST).map(fieldOf)}
          {children}
        </div>
      </details>
    </>
  );
}

/** Loads the names of roles and permissions that there are, as far as the user may list them. */
export function useCatalogue() {
  const list = async () => {
    const [roles, permissions] = await Promise.all([
      may('root.*.read_role') ? call('permissions.listRoles') : [],
      may('root.*.read_permission') ? call('permissions.listPermissions') : [],
    ]);
    return { roles: roles.map(({ name }) => name), permissions: permissions.map(({ slug }) => slug) };
  };
  return useLoad(list, []).data ?? { roles: [], permissions: [] };
}

/**
 * Returns the entered fields for createKey; with `was`, only those that differ, for updateKey, where null
 * clears a field. Throws a Failure if a value is not valid.
 */
export function enteredOf(field: (name: string) => string, was?: Key): Record<string, unknown> {
  const faults = new Map<string, string>();
  const entered = NAMES.flatMap((name) => {
    const before = enteredAs(name, textOf(name, was).trim());
    try {
      const value = enteredAs(name, field(name));
      return JSON.stringify(value) === JSON.stringify(before) ? [] : [[name, value]];
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      faults.set(name, error.fields.get(name) ?? error.message);
      return [];
    }
  });
  if (faults.size > 0) throw new InvalidFields(faults);
  return Object.fromEntries(entered);
}

/** Returns the text of a field's input. */
function textOf(name: FieldName, key: Key | undefined): string {
  if (name === 'ratelimit') return key?.ratelimit ? limitText(key.ratelimit) : '';
  if (isLimits(name)) return JSON.stringify(limitsGiven(key?.[name] ?? [], name === 'ratelimits'));
  const value = key?.[name];
  if (value === undefined) return '';
  if (typeof value === 'number') return localText(value);
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.join(name === 'roles' ? ', ' : ' ');
  return Object.keys(value).length > 0 ? JSON.stringify(value, null, 2) : '';
}

/** Returns the value of an input's text; null = none. */
function enteredAs(name: FieldName, text: string): unknown {
  if (text === '') return null;
  const [kind] = FIELDS[name];
  if (kind === 'time') return new Date(text).getTime();
  if (name === 'roles') return namesOf(text);
  if (kind === 'slugs' || kind === 'ranges' || kind === 'origins') return slugsOf(text);
  if (kind === 'limit') return limitOf(name, text);
  if (isLimits(name)) {
    const limits = limitsOf(text);
    return limits.length > 0 ? limits : null;
  }
  return kind === 'object' ? parseObject(name, text) : text;
}

/** Formats a time for `datetime-local`: local time, to the second. */
function localText(at: number): string {
  return new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** The inputs of the form that creates a key. */
export function NewKeyFields() {
  return (
    <KeyFields>
      <Field
        label="Prefix"
        hint="what the key begins with; empty = as the API says"
        name="prefix"
        pattern="[A-Za-z0-9_]{1,16}"
      />
      <label class="check">
        <input type="checkbox" name="enabled" defaultChecked /> Enabled from the start
      </label>
    </KeyFields>
  );
}

/** A form that sets the credits and the refill of a key or an identity. */
export function CreditFields({
  of,
  apply,
  add,
}: {
  of: Pick<Key, 'remaining' | 'refill'>;
  apply: (headline: string, patch: object) => Promise<unknown>;
  add: (value: number) => Promise<unknown>;
}) {
  const [message, setMessage] = useState('');
  const { remaining, refill } = of;
  const save = async (entry: FormEntry) => {
    const credits = entry('remaining');
    const interval = entry('interval');
    const plan = interval === '' ? null : planOf(entry, interval);
    const isSame =
      credits === numberText(remaining) &&
      interval === (refill?.interval ?? '') &&
      (plan === null || (plan.amount === refill?.amount && plan.refillDay === refill?.refillDay));
    setMessage(isSame ? 'Nothing differs.' : '');
    if (isSame) return undefined;
    if (credits === '') await apply('Made unlimited', { remaining: null });
    else await apply('Credits set', { remaining: whole(credits, 'remaining'), refill: plan });
    return undefined;
  };
  return (
    <>
      {remaining !== undefined && <AddCreditsForm add={add} />}
      <ActionForm label="Set the credits" action="Set" run={save} message={message} isMain={false}>
        <Whole label="Credits" hint="empty = no limit" name="remaining" of={remaining} />
        <label>
          Refill
          <select name="interval">
            <Options
              of={{ '': 'none', daily: 'daily', weekly: 'weekly', monthly: 'monthly' }}
              value={refill?.interval ?? ''}
            />
          </select>
        </label>
        <Whole label="Amount" hint="credits after it" name="amount" of={refill?.amount} />
        <Whole label="Date" hint="where monthly, 1 to 31" name="refillDay" of={refill?.refillDay} />
      </ActionForm>
    </>
  );
}

/** A form that adds to the credits, whatever is spent meanwhile. */
export function AddCreditsForm({
  add,
  onDone,
}: {
  add: (value: number) => Promise<unknown>;
  onDone?: () => void;
}) {
  const save = async (entry: FormEntry) => {
    await add(whole(entry('added'), 'added'));
    return undefined;
  };
  return (
    <ActionForm
      label="Add credits"
      action="Add"
      run={save}
      isMain={onDone !== undefined}
      {...(onDone ? { onDone } : {})}
    >
      <Whole label="Credits to add" hint="to what is left" name="added" of={undefined} />
    </ActionForm>
  );
}

/** An input for a whole number. */
function Whole({ of, ...field }: { label: string; hint: string; name: string; of: number | undefined }) {
  return <Field inputMode="numeric" defaultValue={numberText(of)} {...field} />;
}

const numberText = (value: number | undefined) => (value === undefined ? '' : String(value));

function planOf(entry: FormEntry, interval: string) {
  const day = interval === 'monthly' ? entry('refillDay') : '';
  return {
    interval,
    amount: whole(entry('amount'), 'amount'),
    ...(day === '' ? {} : { refillDay: whole(day, 'refillDay') }),
  };
}

function whole(text: string, name: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidField(name, 'must be a whole number');
  return Number(text);
}
