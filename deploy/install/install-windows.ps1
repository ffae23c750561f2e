# Installs Goodput's dashboard on Windows: the Docker Compose stack in %USERPROFILE%\goodput.
#   irm @GOODPUT_ORIGIN@/install-windows.ps1 | iex
# Everything happens in a function that the last line calls: a download that was cut does nothing.
param(
    [switch]$Uninstall,
    [switch]$Purge,
    [switch]$NoBrowser
)

function Install-Goodput {
    param([bool]$Remove, [bool]$RemoveData, [bool]$Quiet)

    $ErrorActionPreference = 'Stop'
    $origin = '@GOODPUT_ORIGIN@'
    if ($env:GOODPUT_ORIGIN) { $origin = $env:GOODPUT_ORIGIN.TrimEnd('/') }
    $folder = Join-Path $env:USERPROFILE 'goodput'
    $port = 8080
    if ($env:GOODPUT_PORT) { $port = [int]$env:GOODPUT_PORT }

    function Stop-With([string]$sentence) {
        throw "Goodput: $sentence"
    }

    if ($Remove) {
        if (Test-Path (Join-Path $folder 'docker-compose.yml')) {
            Push-Location $folder
            try {
                if ($RemoveData) { docker compose down --remove-orphans --volumes } else { docker compose down --remove-orphans }
            } finally { Pop-Location }
        }
        Write-Host "  remove $folder"
        if ($RemoveData) { Remove-Item -Recurse -Force $folder -ErrorAction SilentlyContinue }
        else { Remove-Item -Force (Join-Path $folder 'docker-compose.yml') -ErrorAction SilentlyContinue }
        Write-Host 'Removed. Data and settings stay unless -Purge is given.'
        return
    }

    if (-not ($origin -match '^https?://')) {
        Stop-With 'This copy does not know its server. Read it from one, or set GOODPUT_ORIGIN.'
    }
    if (-not (Get-Command docker -ErrorAction SilentlyContinue)) {
        Stop-With 'Docker Desktop is not installed: https://www.docker.com/products/docker-desktop/'
    }
    wsl.exe --status *> $null
    if ($LASTEXITCODE -ne 0) {
        Stop-With 'WSL 2 is not enabled. In an administrator PowerShell run: wsl --install, then restart Windows.'
    }
    docker info *> $null
    if ($LASTEXITCODE -ne 0) {
        Stop-With 'Docker Desktop does not answer. Start it, wait for "Docker is running", and run this again.'
    }
    docker compose version *> $null
    if ($LASTEXITCODE -ne 0) {
        Stop-With 'This Docker has no Compose plugin; update Docker Desktop.'
    }

    Write-Host "Goodput from $origin"
    $manifest = Invoke-RestMethod -Uri "$origin/releases/manifest.json"
    $version = $manifest.version
    if ($version -notmatch '^[0-9][0-9A-Za-z.+-]*$') { Stop-With 'The manifest names no version.' }

    $installed = Join-Path $folder 'VERSION'
    if (Test-Path $installed) {
        $have = (Get-Content $installed -Raw).Trim()
        if (([version]($have -replace '[^0-9.].*$', '')) -gt ([version]($version -replace '[^0-9.].*$', ''))) {
            Stop-With "$have is installed, and $version is older."
        }
    }

    if (-not (Test-Path $folder)) {
        Write-Host "  folder $folder"
        New-Item -ItemType Directory -Path $folder | Out-Null
    }

    function Get-Checked([string]$name, [string]$target) {
        $entry = $manifest.files | Where-Object { $_.name -eq $name }
        if (-not $entry) { Stop-With "The release has no $name." }
        $draft = "$target.new"
        Write-Host "  fetch $origin/releases/$name"
        Invoke-WebRequest -UseBasicParsing -Uri "$origin/releases/$name" -OutFile $draft
        $sum = (Get-FileHash -Algorithm SHA256 -Path $draft).Hash.ToLower()
        if ($sum -ne $entry.sha256) {
            Remove-Item -Force $draft
            Stop-With "The SHA-256 of $name is wrong. Nothing was installed."
        }
        Write-Host "  write $target"
        Move-Item -Force $draft $target
    }

    $source = "goodput-$version-source.tar.gz"
    Get-Checked $source (Join-Path $folder $source)
    Get-Checked "docker-compose.release-$version.yml" (Join-Path $folder 'docker-compose.yml')
    Push-Location $folder
    try {
        tar.exe -xzf $source
        if ($LASTEXITCODE -ne 0) { Stop-With 'The source archive could not be unpacked.' }
        $settings = @()
        if (Test-Path '.env') {
            $settings = @(Get-Content '.env' | Where-Object { $_ -notmatch '^(GOODPUT_VERSION|GOODPUT_BUILD_CONTEXT)=' })
        }
        $settings += "GOODPUT_VERSION=$version"
        $settings += "GOODPUT_BUILD_CONTEXT=./goodput-$version"
        Write-Host "  write $(Join-Path $folder '.env')"
        [System.IO.File]::WriteAllLines((Join-Path $folder '.env'), [string[]]$settings)
        docker compose up -d --build
        if ($LASTEXITCODE -ne 0) { Stop-With 'docker compose could not start the stack; its words are above.' }
        [System.IO.File]::WriteAllText($installed, "$version`n")
    } finally { Pop-Location }

    Write-Host "Open http://localhost:$port/ - the simulated cluster reports until GPU servers do."
    if (-not $Quiet) { Start-Process "http://localhost:$port/" }
}

& { Install-Goodput -Remove ([bool]$Uninstall) -RemoveData ([bool]$Purge) -Quiet ([bool]$NoBrowser) }
