-- Ledgers of batches, as docs/engines.md describes them. Nothing here knows what a lock is, but the view at the end.
--
-- A position is an epoch, a revision and a digest. Times are microseconds.

create table lockkeeper_ledgers (
  id bigint generated always as identity primary key,
  space text not null unique,
  -- Drawn when the ledger is made.
  epoch bigint not null,
  -- Where the kept records begin, and which snapshot stands for what came before: its name, or nothing.
  base_revision bigint not null default 0,
  base_digest bigint not null default 0,
  base_volume bigint not null default 0,
  base_stamp bigint not null default 0,
  base_lead bigint not null default 0,
  snapshot text not null default '',
  snapshot_parts bigint not null default 0,
  snapshot_bytes bigint not null default 0,
  snapshot_hash text not null default ''
);

-- One row for each batch behind the snapshot. Its primary key is the compare: of two who write after the same place,
-- one finds it taken.
create table lockkeeper_records (
  ledger bigint not null,
  revision bigint not null,
  -- Right before it, and right after it.
  before bigint not null,
  digest bigint not null,
  batch bytea not null,
  stamp bigint not null,
  wall bigint not null,
  -- By how much the ledger's time was ahead of this server's clock.
  lead bigint not null,
  -- Payload bytes of this ledger up to here.
  volume bigint not null,
  payload bytea not null,
  primary key (ledger, revision)
);
alter table lockkeeper_records alter column payload set storage external;

create table lockkeeper_snapshots (
  ledger bigint not null,
  name text not null,
  part bigint not null,
  stored timestamptz not null default clock_timestamp(),
  bytes bytea not null,
  primary key (ledger, name, part)
);
alter table lockkeeper_snapshots alter column bytes set storage external;

-- What people see: documents that are written in the same step as the batch they come from.
create table lockkeeper_documents (
  ledger bigint not null,
  id text not null,
  -- In the ledger's time.
  created bigint not null,
  expires bigint not null,
  fencing_token bigint not null,
  document jsonb not null,
  primary key (ledger, id)
) with (fillfactor = 70);

-- Where a ledger ends; no row when there is no ledger.
create or replace function lockkeeper_end(named text) returns table (
  ledger bigint, epoch bigint, revision bigint, digest bigint, volume bigint, stamp bigint, lead bigint,
  base_revision bigint, base_digest bigint, base_volume bigint,
  snapshot text, snapshot_parts bigint, snapshot_bytes bigint, snapshot_hash text
) language sql stable as $$
  select l.id, l.epoch, coalesce(r.revision, l.base_revision), coalesce(r.digest, l.base_digest),
    coalesce(r.volume, l.base_volume), coalesce(r.stamp, l.base_stamp), coalesce(r.lead, l.base_lead),
    l.base_revision, l.base_digest, l.base_volume, l.snapshot, l.snapshot_parts, l.snapshot_bytes, l.snapshot_hash
  from lockkeeper_ledgers l
  left join lateral (
    select k.revision, k.digest, k.volume, k.stamp, k.lead from lockkeeper_records k
    -- Not below the base: whatever was removed there may lie in the way for long.
    where k.ledger = l.id and k.revision > l.base_revision order by k.revision desc limit 1
  ) r on true
  where l.space = named
$$;

create or replace function lockkeeper_wall() returns bigint language sql volatile as $$
  select (extract(epoch from clock_timestamp()) * 1000000)::bigint
$$;

-- The time of the ledger. As long as somebody remembers how late it was, a clock that is set moves nothing: the
-- ledger's time stays within what they remember.
create or replace function lockkeeper_time(wall bigint, lead bigint, last bigint, lower bigint, upper bigint) returns bigint
language sql immutable as $$
  select greatest(case when upper > 0 then least(wall + lead, upper) else wall + lead end, lower, last)
$$;

-- The place after a batch.
create or replace function lockkeeper_following(epoch bigint, digest bigint, batch bytea, stamp bigint, wall bigint, hash text)
returns bigint language sql immutable as $$
  select ('x' || encode(substring(sha256(
    int8send(epoch) || int8send(digest) || batch || int8send(stamp) || int8send(wall) || decode(hash, 'hex')
  ) from 1 for 8), 'hex'))::bit(64)::bigint
$$;

-- Whether the ledger has passed a place, and still knows.
create or replace function lockkeeper_has_place(ends record, at_epoch bigint, at_revision bigint, at_digest bigint)
returns boolean language plpgsql stable as $$
begin
  if at_epoch <> ends.epoch or at_revision < ends.base_revision or at_revision > ends.revision then
    return false;
  elsif at_revision = ends.revision then
    return at_digest = ends.digest;
  elsif at_revision = ends.base_revision then
    return at_digest = ends.base_digest;
  end if;
  return exists (
    select from lockkeeper_records k
    where k.ledger = ends.ledger and k.revision = at_revision and k.digest = at_digest);
end
$$;

-- What is left when somebody has dropped the tables alone; with it go the functions that answer so.
drop type if exists lockkeeper_answer cascade;

-- An answer: the first row says what is so; the others are records.
create type lockkeeper_answer as (
  word text, now bigint, epoch bigint, end_revision bigint, end_digest bigint, bytes bigint,
  base_revision bigint, base_digest bigint,
  snapshot text, snapshot_parts bigint, snapshot_bytes bigint, snapshot_hash text,
  revision bigint, before bigint, batch bytea, stamp bigint, wall bigint, payload bytea
);

-- What somebody missed who stands at a place.
create or replace function lockkeeper_look(
  named text, at_epoch bigint, at_revision bigint, at_digest bigint, lower bigint, upper bigint, budget bigint
) returns setof lockkeeper_answer language plpgsql stable as $$
declare
  ends record;
  answer lockkeeper_answer;
  is_origin constant boolean := at_epoch = 0 and at_revision = 0 and at_digest = 0;
  from_revision bigint;
  kept record;
  size bigint := 0;
begin
  select * into ends from lockkeeper_end(named);
  if not found then
    answer.word := 'empty';
    answer.now := lockkeeper_time(lockkeeper_wall(), 0, 0, lower, upper);
    return next answer;
    return;
  end if;
  if (is_origin and ends.snapshot = '') or lockkeeper_has_place(ends, at_epoch, at_revision, at_digest) then
    answer.word := 'asked';
    from_revision := at_revision;
  elsif is_origin or (at_epoch = ends.epoch and at_revision < ends.base_revision) then
    answer.word := 'snapshot';
    from_revision := ends.base_revision;
  else
    answer.word := 'rewritten';
    from_revision := ends.base_revision;
  end if;
  answer.now := lockkeeper_time(lockkeeper_wall(), ends.lead, ends.stamp, lower, upper);
  answer.epoch := ends.epoch;
  answer.end_revision := ends.revision;
  answer.end_digest := ends.digest;
  answer.bytes := ends.volume - ends.base_volume;
  answer.base_revision := ends.base_revision;
  answer.base_digest := ends.base_digest;
  answer.snapshot := ends.snapshot;
  answer.snapshot_parts := ends.snapshot_parts;
  answer.snapshot_bytes := ends.snapshot_bytes;
  answer.snapshot_hash := ends.snapshot_hash;
  return next answer;
  if budget > 0 and from_revision < ends.revision then
    answer := null;
    for kept in
      select k.revision, k.before, k.batch, k.stamp, k.wall, k.payload from lockkeeper_records k
      where k.ledger = ends.ledger and k.revision > from_revision order by k.revision
    loop
      answer.revision := kept.revision;
      answer.before := kept.before;
      answer.batch := kept.batch;
      answer.stamp := kept.stamp;
      answer.wall := kept.wall;
      answer.payload := kept.payload;
      return next answer;
      size := size + 160 + length(kept.payload);
      exit when size >= budget;
    end loop;
  end if;
end
$$;

-- Records a batch if the ledger ends at this place, else says what was missed.
create or replace function lockkeeper_append(
  named text, at_epoch bigint, at_revision bigint, at_digest bigint, lower bigint, upper bigint, budget bigint,
  new_batch bytea, new_payload bytea, hash text, proposed_time bigint, proposed_wall bigint, log_bytes_max bigint,
  new_epoch bigint, ids text[], lefts bigint[], documents text[], tokens bigint[], places bigint[]
) returns setof lockkeeper_answer language plpgsql volatile as $$
declare
  ends record;
  answer lockkeeper_answer;
  changed record;
  is_end boolean := false;
  server_wall constant bigint := lockkeeper_wall();
  stamp_wall bigint;
begin
  select * into ends from lockkeeper_end(named);
  if not found and at_epoch = 0 and at_revision = 0 and at_digest = 0 then
    insert into lockkeeper_ledgers (space, epoch) values (named, new_epoch) on conflict do nothing;
    select * into ends from lockkeeper_end(named);
  end if;
  if found then
    is_end := (at_epoch = ends.epoch and at_revision = ends.revision and at_digest = ends.digest)
      or (at_epoch = 0 and at_revision = 0 and at_digest = 0 and ends.revision = 0);
  end if;
  if is_end then
    answer.now := lockkeeper_time(server_wall, ends.lead, ends.stamp, lower, upper);
    answer.epoch := ends.epoch;
    if ends.volume + length(new_payload) - ends.base_volume > log_bytes_max then
      answer.word := 'full';
      answer.end_revision := ends.revision;
      answer.end_digest := ends.digest;
      answer.bytes := ends.volume - ends.base_volume;
      return next answer;
      return;
    end if;
    -- What the writer proposes is taken when it lies between the last stamp and now; its wall clock, unless it is wrong.
    answer.stamp := answer.now;
    answer.wall := server_wall;
    if proposed_time >= ends.stamp and proposed_time <= answer.now then
      answer.stamp := proposed_time;
      stamp_wall := server_wall - (answer.now - proposed_time);
      answer.wall := case when abs(proposed_wall - stamp_wall) < 1000000 then proposed_wall else stamp_wall end;
    end if;
    answer.end_revision := ends.revision + 1;
    answer.end_digest :=
      lockkeeper_following(ends.epoch, ends.digest, new_batch, answer.stamp, answer.wall, hash);
    insert into lockkeeper_records (ledger, revision, before, digest, batch, stamp, wall, lead, volume, payload)
    values (ends.ledger, answer.end_revision, ends.digest, answer.end_digest, new_batch, answer.stamp, answer.wall,
      answer.now - server_wall, ends.volume + length(new_payload), new_payload)
    on conflict do nothing;
    if found and exists (
      select from lockkeeper_ledgers l where l.id = ends.ledger and l.base_revision >= answer.end_revision
    ) then
      -- Others were here meanwhile, and what they wrote was compacted already: the place was not free, it is gone.
      delete from lockkeeper_records k where k.ledger = ends.ledger and k.revision = answer.end_revision;
    elsif found then
      if cardinality(ids) > 0 then
        -- What has nothing left is gone; what has a token is granted now; the rest lasts longer. All times follow the stamp,
        -- which the writer did not know, and so does a token: it is at least the stamp and the grants before it.
        -- One at a time, by its key: whatever is known of the table, nothing else is looked at.
        for changed in
          select u.* from unnest(ids, lefts, documents, tokens) as u (id, remains, document, token) where u.token is null
        loop
          if changed.remains is null then
            delete from lockkeeper_documents d where d.ledger = ends.ledger and d.id = changed.id;
          else
            update lockkeeper_documents d
            set expires = answer.stamp + changed.remains, document = coalesce(changed.document::jsonb, d.document)
            where d.ledger = ends.ledger and d.id = changed.id;
          end if;
        end loop;
        insert into lockkeeper_documents (ledger, id, created, expires, fencing_token, document)
        select ends.ledger, u.id, answer.stamp, answer.stamp + u.remains, greatest(u.token, answer.stamp + u.place),
          u.document::jsonb
        from unnest(ids, lefts, documents, tokens, places) as u (id, remains, document, token, place)
        where u.token is not null
        on conflict (ledger, id) do update set created = excluded.created, expires = excluded.expires,
          fencing_token = excluded.fencing_token, document = excluded.document;
      end if;
      answer.word := 'appended';
      answer.bytes := ends.volume + length(new_payload) - ends.base_volume;
      return next answer;
      return;
    end if;
  end if;
  -- In one statement, and so of one moment.
  return query select * from lockkeeper_look(named, at_epoch, at_revision, at_digest, lower, upper, budget);
end
$$;

-- Puts a snapshot whose parts are all there in the place of what it stands for.
create or replace function lockkeeper_switch(
  named text, at_epoch bigint, at_revision bigint, at_digest bigint, lower bigint, upper bigint,
  name_new text, parts_new bigint, bytes_new bigint, hash_new text
) returns setof lockkeeper_answer language plpgsql volatile as $$
declare
  ends record;
  stands record;
  answer lockkeeper_answer;
begin
  -- One at a time.
  perform from lockkeeper_ledgers l where l.space = named for update;
  select * into ends from lockkeeper_end(named);
  if not found then
    answer.word := 'foreign';
    answer.now := lockkeeper_time(lockkeeper_wall(), 0, 0, lower, upper);
    return next answer;
    return;
  end if;
  answer.now := lockkeeper_time(lockkeeper_wall(), ends.lead, ends.stamp, lower, upper);
  answer.epoch := ends.epoch;
  answer.end_revision := ends.revision;
  answer.end_digest := ends.digest;
  answer.bytes := ends.volume - ends.base_volume;
  if ends.snapshot <> '' and at_epoch = ends.epoch and at_revision <= ends.base_revision then
    answer.word := 'older';
  elsif not lockkeeper_has_place(ends, at_epoch, at_revision, at_digest) then
    answer.word := 'foreign';
  elsif (select count(*) from lockkeeper_snapshots s where s.ledger = ends.ledger and s.name = name_new) <> parts_new then
    answer.word := 'incomplete';
  else
    answer.word := 'compacted';
    if at_revision > ends.base_revision then
      select k.volume, k.stamp, k.lead into stands from lockkeeper_records k
      where k.ledger = ends.ledger and k.revision = at_revision;
      update lockkeeper_ledgers l set base_volume = stands.volume, base_stamp = stands.stamp, base_lead = stands.lead
      where l.id = ends.ledger;
      answer.bytes := ends.volume - stands.volume;
    end if;
    update lockkeeper_ledgers l set base_revision = at_revision, base_digest = at_digest, snapshot = name_new,
      snapshot_parts = parts_new, snapshot_bytes = bytes_new, snapshot_hash = hash_new
    where l.id = ends.ledger;
    delete from lockkeeper_records k where k.ledger = ends.ledger and k.revision <= at_revision;
    delete from lockkeeper_snapshots s where s.ledger = ends.ledger and s.name = ends.snapshot;
  end if;
  if answer.word in ('older', 'foreign') then
    delete from lockkeeper_snapshots s where s.ledger = ends.ledger and s.name = name_new;
  end if;
  -- Uploads that nobody goes on with.
  delete from lockkeeper_snapshots s where s.ledger = ends.ledger and s.name <> name_new
    and s.stored < clock_timestamp() - interval '10 minutes'
    and s.name <> (select l.snapshot from lockkeeper_ledgers l where l.id = ends.ledger);
  return next answer;
end
$$;

-- Who holds what. Only to be read: it follows the ledger, which is the truth.
create view lockkeeper_locks as
  select l.space, d.id as lock_id, d.document ->> 'key' as key,
    (d.document ->> 'start_line')::bigint as start_line, (d.document ->> 'end_line')::bigint as end_line,
    d.document ->> 'mode' as mode, d.document ->> 'owner' as owner, d.document ->> 'session_id' as session_id,
    d.document ->> 'intention' as intention, d.fencing_token,
    to_timestamp((d.created - e.lead) / 1000000.0) as created_at,
    to_timestamp((d.expires - e.lead) / 1000000.0) as expires_at
  from lockkeeper_ledgers l
  -- Written out, and no function: a view is read with its owner's rights and names, a function with the reader's.
  cross join lateral (
    select coalesce((
      select k.lead from lockkeeper_records k
      where k.ledger = l.id and k.revision > l.base_revision order by k.revision desc limit 1
    ), l.base_lead) as lead
  ) e
  join lockkeeper_documents d on d.ledger = l.id
  where d.expires > (extract(epoch from clock_timestamp()) * 1000000)::bigint + e.lead;
