import { useState } from 'preact/hooks';
import type { ConcurrencyInput, NamedLimit } from '#shared/protocol/records/limit.ts';
import { limitParts, limitText, UNITS } from '#shared/protocol/records/limit.ts';
import { FieldError, Options } from './forms.tsx';
import { NAMES, PERIODS } from './limit-input.tsx';

type Limit = Partial<NamedLimit> & Partial<ConcurrencyInput>;

/** A limit as it is edited, with what the form does not show. */
interface Row {
  readonly id: number;
  readonly base: Limit;
  readonly name: string;
  readonly limit: string;
  readonly amount: string;
  readonly unit: string;
  readonly warnings: string;
  readonly per: string;
  readonly isExact: boolean;
  readonly isAuto: boolean;
}

const RATE: Limit = { duration: 60_000, autoApply: true };

function rowOf(base: Limit, id: number): Row {
  const { name = '', limit, per = 'key', thresholds = [], async = true, autoApply = false } = base;
  const { amount = '', unit = '' } = limitParts(limitText({ limit: 1, ...base, async: true })) ?? {};
  return {
    ...{ id, base, name, amount, unit, per, isExact: !async, isAuto: autoApply },
    ...{ limit: limit === undefined ? '' : String(limit), warnings: thresholds.join(', ') },
  };
}

const numberOf = (text: string) => (/^\d+$/.test(text) ? Number(text) : text);

/** Returns the limit that a row stands for, which keeps what the row does not show. */
function limitOf(row: Row, isRate: boolean, hasScope: boolean): object {
  const { limit: _limit, duration: _duration, interval, anchor, thresholds: _, ...kept } = row.base;
  const { async: _async, autoApply: _autoApply, per: _per, ...others } = kept;
  const scope = hasScope ? { per: row.per } : {};
  const size = { ...others, name: row.name, limit: numberOf(row.limit), ...scope };
  if (!isRate) return size;
  const isPeriod = row.unit in PERIODS;
  const warnings = row.warnings.split(/[\s,%]+/).filter(Boolean);
  return {
    ...size,
    ...(isPeriod
      ? { interval: row.unit, ...(anchor && row.unit === interval ? { anchor } : {}) }
      : { duration: Number(row.amount) * UNITS[row.unit as keyof typeof UNITS][0] }),
    ...(isPeriod && warnings.length > 0 ? { thresholds: warnings.map(numberOf) } : {}),
    ...(row.isExact ? { async: false } : {}),
    ...(row.isAuto ? { autoApply: true } : {}),
  };
}

/** Returns the list that an untouched form gives for these limits. */
export const limitsGiven = (of: readonly Limit[], isRate: boolean): readonly object[] =>
  of.map((each, i) => limitOf(rowOf(each, i), isRate, false));

/**
 * Inputs for limits, one row each. A form gets a list as JSON, and of each limit also what no input shows.
 * @param props.isRate false = limits at the same time
 * @param props.hasScope true = of a role, whose limits are for each key or for each customer
 */
export function LimitRows(props: {
  name: string;
  label: string;
  of: readonly Limit[];
  isRate: boolean;
  hasScope?: boolean;
}) {
  const { name, label, isRate, hasScope = false } = props;
  const [rows, setRows] = useState(() => props.of.map(rowOf));
  const [added, setAdded] = useState(props.of.length);
  const change = (row: Row, fields: Partial<Row>) =>
    setRows(rows.map((each) => (each === row ? { ...row, ...fields } : each)));
  const filled = rows.filter((row) => row.name !== '' || row.limit !== '');
  const input = (
    row: Row,
    field: 'name' | 'limit' | 'amount' | 'warnings',
    title: string,
    isNumber = true,
  ) => (
    <input
      aria-label={title}
      placeholder={title}
      value={row[field]}
      autocomplete="off"
      inputMode={isNumber ? 'numeric' : 'text'}
      class={field}
      onInput={(event) => change(row, { [field]: event.currentTarget.value.trim() })}
    />
  );
  const box = (row: Row, field: 'isExact' | 'isAuto', title: string, reason: string) => (
    <label class="check" title={reason}>
      <input
        type="checkbox"
        checked={row[field]}
        onChange={(event) => change(row, { [field]: event.currentTarget.checked })}
      />{' '}
      {title}
    </label>
  );
  return (
    <fieldset class="field wide limit-rows">
      <legend>{label}</legend>
      {rows.map((row) => (
        // biome-ignore lint/a11y/useSemanticElements: a row of inputs within the fieldset of all rows
        <div key={row.id} role="group" aria-label={`Limit ${row.name}`} class="limit">
          {input(row, 'name', 'Name', false)}
          {input(row, 'limit', 'Number')}
          {isRate ? (
            <>
              per{!(row.unit in PERIODS) && input(row, 'amount', 'Length')}
              <select
                aria-label="Unit"
                onChange={(event) => change(row, { unit: event.currentTarget.value })}
              >
                <Options of={{ ...NAMES, ...PERIODS }} value={row.unit} />
              </select>
            </>
          ) : (
            'at the same time'
          )}
          {hasScope && (
            <select
              aria-label="Shared by"
              onChange={(event) => change(row, { per: event.currentTarget.value })}
            >
              <Options of={{ key: 'each key', identity: 'all keys of a customer' }} value={row.per} />
            </select>
          )}
          {isRate && row.unit in PERIODS && input(row, 'warnings', 'Warn at %', false)}
          {isRate && box(row, 'isAuto', 'each request', 'Else only requests that name it take from it')}
          {isRate && box(row, 'isExact', 'exact', 'Verifiers ask Redis each time')}
          <button
            type="button"
            class="small dots"
            aria-label={`Remove limit ${row.name}`}
            onClick={() => setRows(rows.filter((each) => each !== row))}
          >
            ×
          </button>
        </div>
      ))}
      <button
        type="button"
        class="small"
        onClick={() => {
          setRows([...rows, rowOf(isRate ? RATE : {}, added)]);
          setAdded(added + 1);
        }}
      >
        Add limit
      </button>
      <input
        type="hidden"
        name={name}
        value={JSON.stringify(filled.map((row) => limitOf(row, isRate, hasScope)))}
      />
      <FieldError name={name} />
    </fieldset>
  );
}
