-- job_submit.lua: the gate between users and Slurm's scheduler.
--
-- A job that asks for GPUs is judged by what the bridge published (bridge-members.lua), marked with a key of its own in
-- AdminComment, and held; only the bridge releases it, after the ledger granted it. Every refusal is one sentence.
-- A job without GPUs passes. slurmctld calls slurm_job_submit and slurm_job_modify, and reads this file again when it
-- changes.

local MEMBERS_FILE = "/etc/slurm/bridge-members.lua"
local KEY_PREFIX = "sb:"
local KEY_LENGTH = 26
local KEY_LETTERS = "abcdefghijklmnopqrstuvwxyz234567" -- 32, so that a byte's remainder favours none
local REQUEST_FIELDS = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }
local EXCLUSIVE = { [0] = true, [4] = true } -- job_desc.shared: whole nodes, whole topology segments

-- "Not set" of slurm.h, for 16, 32 and 64 bits; "unlimited" of each is one more.
local UNSET = { [65534] = true, [4294967294] = true, [18446744073709551614] = true }

local function set(number)
  return number ~= nil and not UNSET[number]
end

local function refuse(code, ...)
  slurm.log_user(...)
  return code
end

-- ---------------------------------------------------------------- what is asked for

-- "gres/gpu:h100:4,gres/gpu=2" -> {h100 = 4, [""] = 2}; nothing else is looked at.
local function gpus_in(text, found)
  for item in string.gmatch(text or "", "[^,]+") do
    local rest = string.match(item, "^%s*gres[/:]gpu(.*)$") or string.match(item, "^%s*gpu(.*)$")
    if rest and (rest == "" or string.match(rest, "^[:=]")) then
      local words = {}
      for word in string.gmatch(rest, "[^:=]+") do
        words[#words + 1] = word
      end
      local digits, unit = string.match(words[#words] or "", "^(%d+)([kKmM]?)$")
      local count = 1
      if digits then
        count = tonumber(digits) * (({ k = 1024, m = 1024 * 1024 })[string.lower(unit)] or 1)
        words[#words] = nil
      end
      local kind = words[1] or ""
      if count > 0 then
        found[kind] = (found[kind] or 0) + count
      end
    end
  end
  return found
end

-- The least that the job will ever need, by GPU type; nil when it asks for none.
local function gpus_asked(job)
  local least = {}
  local nodes = set(job.min_nodes) and job.min_nodes > 0 and job.min_nodes or 1
  local tasks = set(job.num_tasks) and job.num_tasks > 0 and job.num_tasks or 1
  local times = { tres_per_node = nodes, tres_per_job = 1, tres_per_task = tasks, tres_per_socket = nodes }
  for _, field in ipairs(REQUEST_FIELDS) do
    for kind, count in pairs(gpus_in(job[field], {})) do
      least[kind] = math.max(least[kind] or 0, count * times[field])
    end
  end
  return next(least) and least or nil
end

-- ---------------------------------------------------------------- who may ask

local members_text, members

-- The file is data: it gets nothing to call. Slurm is built with Lua 5.1 here, newer ones spell it otherwise.
local function compiled(text)
  if setfenv then
    local chunk, problem = loadstring(text, "bridge-members.lua")
    return chunk and setfenv(chunk, {}), problem
  end
  return load(text, "bridge-members.lua", "t", {})
end

-- The bridge's table, or nil while it is missing or broken.
local function published()
  local file = io.open(MEMBERS_FILE, "r")
  if not file then
    return nil
  end
  local text = file:read("*a")
  file:close()
  if text ~= members_text then
    local chunk, problem = compiled(text)
    local ok, value = false, problem
    if chunk then
      ok, value = pcall(chunk)
    end
    members_text, members = text, nil
    if ok and type(value) == "table" and type(value.accounts) == "table" and type(value.flavors) == "table" then
      members = value
    else
      slurm.log_error("job_submit.lua: %s is broken: %s", MEMBERS_FILE, tostring(value))
    end
  end
  return members
end

local function accounts_of(user, table_)
  local found = {}
  for account, team in pairs(table_.accounts) do
    if team.users and team.users[user] then
      found[#found + 1] = account
    end
  end
  table.sort(found)
  return found
end

local function sorted_keys(table_)
  local keys = {}
  for key in pairs(table_) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end

-- The account to charge, or nil and one sentence.
local function account_for(job, user, table_)
  local mine = accounts_of(user, table_)
  local listed = #mine > 0 and ("your accounts: " .. table.concat(mine, ", ")) or "you are in no team; ask an administrator"
  local asked = job.account
  if asked == nil or asked == "" then
    if #mine == 1 then
      return mine[1]
    end
    return nil, string.format("a GPU job is charged to an account and none was given: add --account=NAME (%s)", listed)
  end
  if not table_.accounts[asked] then
    return nil, string.format("account %s does not exist: use another --account (%s)", asked, listed)
  end
  for _, account in ipairs(mine) do
    if account == asked then
      return asked
    end
  end
  return nil, string.format("user %s is not a member of account %s: use another --account (%s)", user, asked, listed)
end

-- nil when this could be granted one day, else one sentence.
local function never(asked, account, table_)
  local known = {}
  for _, kind in ipairs(table_.flavors) do
    known[kind] = true
  end
  local types = table.concat(table_.flavors, ", ")
  local ceilings = table_.accounts[account].ceilings or {}
  local kinds = sorted_keys(asked)
  if #kinds > 1 then
    return string.format("a job gets GPUs of one type, this one asks for %d: submit one job for each", #kinds)
  end
  local kind = kinds[1] ~= "" and kinds[1] or table_.default_flavor
  if not kind then
    return string.format("no GPU type is the default: name one of %s, as in --gres=gpu:TYPE:N", types)
  end
  if not known[kind] then
    return string.format("GPU type %s does not exist: use one of %s", kind, types)
  end
  local ceiling = ceilings[kind]
  if ceiling == nil then
    local open = sorted_keys(ceilings)
    return string.format("account %s has no quota of GPU type %s: %s", account, kind,
      #open > 0 and ("use " .. table.concat(open, ", ")) or "ask an administrator")
  end
  if ceiling >= 0 and asked[kinds[1]] > ceiling then
    return string.format("%d %s GPUs can never be granted to account %s: its limit is %d", asked[kinds[1]], kind,
      account, ceiling)
  end
  return nil
end

-- ---------------------------------------------------------------- submission

-- A name that no other job ever had: a JobId can be given twice when slurmctld is killed.
local function new_key()
  local source = assert(io.open("/dev/urandom", "rb"), "cannot open /dev/urandom")
  local bytes = source:read(KEY_LENGTH)
  source:close()
  assert(bytes and #bytes == KEY_LENGTH, "/dev/urandom gave too little")
  local letters = {}
  for index = 1, KEY_LENGTH do
    local at = string.byte(bytes, index) % 32 + 1
    letters[index] = string.sub(KEY_LETTERS, at, at)
  end
  return table.concat(letters)
end

local function marked(comment)
  return comment ~= nil and string.sub(comment, 1, #KEY_PREFIX) == KEY_PREFIX
end

-- " signal=B:USR1@60" as SBATCH_SIGNAL or the script's #SBATCH lines have it, or "": slurmctld shows --signal to nobody,
-- and the bridge sends it before it takes a job's GPUs back. (The command line stands in the job's record.)
local function signal_asked(job)
  local told = job.environment and job.environment["SBATCH_SIGNAL"]
  if not told then
    for line in string.gmatch(job.script or "", "[^\n]+") do
      if not string.match(line, "^%s*#") then
        break
      end
      told = string.match(line, "^#SBATCH%s.*%-%-signal[= ]%s*([%w:@+-]+)") or told
    end
  end
  if told and #told <= 32 and string.match(told, "^[%w:@+-]+$") then
    return " signal=" .. told
  end
  return ""
end

-- The bridge submits as root for a user whom it has checked, with the key that it will look for.
local function from_bridge(job, uid)
  return uid == 0 and marked(job.admin_comment)
end

local function refusal_of_gpu_job(job, asked)
  local table_ = published()
  if not table_ then
    return "the bridge has not published its teams yet; try again in a moment"
  end
  if job.tres_per_socket and next(gpus_in(job.tres_per_socket, {})) then
    return "--gpus-per-socket cannot be counted before the job runs: ask with --gpus-per-node or --gres=gpu:N"
  end
  if set(job.het_job_offset) then
    return "a heterogeneous job with GPUs is not admitted as a whole: submit its parts as jobs of their own"
  end
  if job.priority == 0 then
    return "--hold is of no use for a GPU job: it waits for the ledger anyway; leave it out, or use --begin=TIME"
  end
  local account, sentence = account_for(job, job.user_name or "", table_)
  if not account then
    return sentence
  end
  sentence = never(asked, account, table_)
  if sentence then
    return sentence
  end
  job.account = account
  return nil
end

function slurm_job_submit(job, _, uid)
  if EXCLUSIVE[job.shared] then
    return refuse(slurm.ESLURM_NOT_SUPPORTED or slurm.ERROR,
      "--exclusive is refused: it takes every GPU of its nodes; ask for what you need with --gres=gpu:N")
  end
  local asked = gpus_asked(job)
  if from_bridge(job, uid) then
    job.priority = 0
    return slurm.SUCCESS
  end
  if not asked then
    if marked(job.admin_comment) then
      job.admin_comment = ""
    end
    return slurm.SUCCESS
  end
  local sentence = refusal_of_gpu_job(job, asked)
  if sentence then
    return refuse(slurm.ESLURM_ACCESS_DENIED, "%s", sentence)
  end
  job.priority = 0
  job.admin_comment = KEY_PREFIX .. new_key() .. signal_asked(job)
  return slurm.SUCCESS
end

-- ---------------------------------------------------------------- changes

local PRIORITY_SENTENCE = "job %d starts by itself when its GPUs are granted: its priority is the ledger's, "
  .. "see `sbridge explain %d`; scancel gives it up"
local FIXED = "%s of GPU job %d is what its grant is counted by and cannot be changed: cancel it and submit it again"
local FIXED_NUMBERS = {
  { "min_nodes", "NumNodes" }, { "max_nodes", "NumNodes" }, { "num_tasks", "NumTasks" },
  { "ntasks_per_node", "NtasksPerNode" }, { "ntasks_per_socket", "NtasksPerSocket" },
  { "ntasks_per_tres", "NtasksPerTRES" },
}
local FIXED_TEXTS = {
  { "tres_per_node", "TresPerNode" }, { "tres_per_job", "TresPerJob" }, { "tres_per_task", "TresPerTask" },
  { "tres_per_socket", "TresPerSocket" }, { "account", "Account" }, { "req_nodes", "ReqNodeList" },
  { "admin_comment", "AdminComment" },
}

-- The name of a field that a user may not change on a GPU job, or nil.
local function fixed_field(change)
  for _, pair in ipairs(FIXED_NUMBERS) do
    if set(change[pair[1]]) then
      return pair[2]
    end
  end
  for _, pair in ipairs(FIXED_TEXTS) do
    if change[pair[1]] ~= nil then
      return pair[2]
    end
  end
  return nil
end

local function longer(change, record)
  return set(change.time_limit) and change.time_limit > record.time_limit
end

-- What a job without GPUs may not become: a job with GPUs that nobody granted.
local function modify_plain(change, record)
  if gpus_asked(change) then
    return refuse(slurm.ESLURM_ACCESS_DENIED, "job %d was submitted without GPUs and cannot get any: submit a new job",
      record.job_id)
  end
  if change.admin_comment ~= nil then
    return refuse(slurm.ESLURM_ACCESS_DENIED, "AdminComment of job %d is not yours to change: use Comment", record.job_id)
  end
  return slurm.SUCCESS
end

function slurm_job_modify(change, record, _, uid)
  if uid == 0 then
    return slurm.SUCCESS
  end
  if EXCLUSIVE[change.shared] then
    return refuse(slurm.ESLURM_ACCESS_DENIED, "job %d cannot become exclusive: that takes every GPU of its nodes",
      record.job_id)
  end
  if not marked(record.admin_comment) then
    return modify_plain(change, record)
  end
  -- Nice, too: it is subtracted from the priority, and slurmctld keeps the result above 0, which is a release.
  if set(change.priority) or set(change.nice) then
    return refuse(slurm.ESLURM_ACCESS_DENIED, PRIORITY_SENTENCE, record.job_id, record.job_id)
  end
  if longer(change, record) then
    return refuse(slurm.ESLURM_ACCESS_DENIED, "the time limit of GPU job %d may be lowered, not raised: cancel it and "
      .. "submit it again", record.job_id)
  end
  local field = fixed_field(change)
  if field then
    return refuse(slurm.ESLURM_ACCESS_DENIED, FIXED, field, record.job_id)
  end
  return slurm.SUCCESS
end

return slurm.SUCCESS
