import { useState } from 'preact/hooks';
import { call } from '../api/client.ts';
import { ActionForm, Field, type FormEntry, Options } from '../forms/forms.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';

/** The rules of an API that are times, by the labels and hints of their inputs. */
const TIMES = {
  defaultLifetimeMs: ['Days until new keys expire', 'empty = never, if the next allows it'],
  maxLifetimeMs: ['Days that a key may live at most', 'empty = for ever'],
  disableUnusedAfterMs: ['Days after which unused keys are disabled', 'empty = never'],
} as const;
type Time = keyof typeof TIMES;
const times = Object.entries(TIMES) as [Time, (typeof TIMES)[Time]][];
const DAY_MS = 86_400_000;

interface Defaults extends Partial<Record<Time, number>> {
  readonly defaultPrefix?: string;
  readonly defaultBytes?: number;
  readonly selfRevocation?: boolean;
}

interface Tokens {
  readonly tokens?: boolean;
  readonly tokenAudiences?: readonly string[];
  readonly tokenLeewayMs?: number;
}

/** Inputs for an API's defaults for new keys and its rules, in the forms that create and change an API. */
export function DefaultFields({ of }: { of?: Defaults }) {
  return (
    <>
      <Field
        label="Prefix of new keys"
        hint="empty = none"
        name="defaultPrefix"
        pattern="[A-Za-z0-9_]{1,16}"
        defaultValue={of?.defaultPrefix ?? ''}
      />
      <Field
        label="Random bytes of new keys"
        hint="empty = 16"
        name="defaultBytes"
        type="number"
        min="16"
        max="255"
        defaultValue={of?.defaultBytes ?? ''}
      />
      {times.map(([name, [label, hint]]) => (
        <Field
          {...{ key: name, name, label, hint }}
          type="number"
          min="0"
          step="any"
          defaultValue={of?.[name] === undefined ? '' : of[name] / DAY_MS}
        />
      ))}
      <label class="field">
        Holders may revoke their keys <small>at /oauth2/revoke</small>
        <select name="selfRevocation">
          <Options of={{ no: 'no', yes: 'yes' }} value={of?.selfRevocation ? 'yes' : 'no'} />
        </select>
      </label>
    </>
  );
}

/** Returns the entered defaults, with `emptyValue` in place of empty ones. */
export function enteredDefaults<None>(entry: FormEntry, emptyValue: None) {
  const [prefix, bytes] = [entry('defaultPrefix'), entry('defaultBytes')];
  const ms = (days: string) => (days === '' ? emptyValue : Math.round(Number(days) * DAY_MS));
  return {
    selfRevocation: entry('selfRevocation') === 'yes' || emptyValue,
    defaultPrefix: prefix || emptyValue,
    defaultBytes: bytes ? Number(bytes) : emptyValue,
    ...(Object.fromEntries(times.map(([name]) => [name, ms(entry(name))])) as Record<Time, number | None>),
  };
}

/** A form that changes an API's name, its defaults for new keys and its rules. */
export function ApiSettings({ apiId }: { apiId: string }) {
  const api = useLoad(() => call('apis.getApi', { apiId }), [apiId]);
  const [message, setMessage] = useState('');
  const save = async (entry: FormEntry, had: Tokens, ifSequence?: number) => {
    const name = entry('name');
    const tokens = entry('tokens') === 'yes';
    const audiences = entry('tokenAudiences').split(/\s+/).filter(Boolean);
    const leewayMs = entry('tokenLeeway') === '' ? null : Math.round(1000 * Number(entry('tokenLeeway')));
    const input = {
      ...{ apiId, ifSequence, ...(name ? { name } : {}), ...enteredDefaults(entry, null) },
      ...(tokens === (had.tokens === true) ? {} : { tokens }),
      ...(audiences.join(' ') === (had.tokenAudiences ?? []).join(' ')
        ? {}
        : { tokenAudiences: audiences.length === 0 ? null : audiences }),
      ...(leewayMs === (had.tokenLeewayMs ?? null) ? {} : { tokenLeewayMs: leewayMs }),
      waitMs: 0,
    };
    const { sequence } = await call('apis.updateApi', input).finally(api.reload);
    setMessage('Saved. Keys that exist keep their prefix and expiry.');
    return { sequence };
  };
  return (
    <Loaded of={api}>
      {(of) => (
        <ActionForm
          sequence={of.sequence}
          label="Settings of the API"
          action="Save"
          run={(entry, ifSequence) => save(entry, of, ifSequence)}
          message={message}
        >
          <Field label="Name" name="name" maxLength={256} defaultValue={of.name ?? ''} />
          <DefaultFields of={of} />
          <label class="field">
            Tokens for the API behind <small>each disable then takes about 10 s and the leeway</small>
            <select name="tokens">
              <Options of={{ no: 'no', yes: 'yes' }} value={of.tokens ? 'yes' : 'no'} />
            </select>
          </label>
          <Field
            label="Whom tokens may be for"
            hint="with a space between; empty = this API"
            name="tokenAudiences"
            defaultValue={(of.tokenAudiences ?? []).join(' ')}
          />
          <Field
            label="Seconds for which services accept a token after its end"
            hint="empty = 62"
            name="tokenLeeway"
            type="number"
            min="0"
            max="600"
            step="any"
            defaultValue={of.tokenLeewayMs === undefined ? '' : of.tokenLeewayMs / 1000}
          />
        </ActionForm>
      )}
    </Loaded>
  );
}
